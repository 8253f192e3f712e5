/* odd_ends.c: processes and threads that end. */
#include "odd.h"

#include "../forbid.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that was made without fork() ends by exit(), and waits for nobody. */
void child_of_clone(void)
{
	int status;
	pid_t child;

	set_up();
	OK(submit());
	fflush(stdout);
	child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (!child) {
		if (!forbid(SYS_nanosleep, SECCOMP_RET_KILL_PROCESS))
			_exit(1);
		exit(0);
	}
	if (waitpid(child, &status, 0) != child || status)
		fail("the child has waited, or failed", status);
	OK(submit());
}

/* The same child submits work while the process has no lease: it waits for nobody either. */
void child_of_clone_submits(void)
{
	int status;
	pid_t child;

	set_up();
	OK(submit());
	say("submitted");
	wait_for_test();
	child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (!child)
		_exit(submit() == CUDA_ERROR_OPERATING_SYSTEM ? 0 : 1);
	if (waitpid(child, &status, 0) != child || status)
		fail("the child has failed otherwise", status);
}

static void goes_on(struct other *other)
{
	(void)other;
	OK(submit());
	say("submitted");
	wait_for_test();
	OK(submit());
	say("done");
	exit(0);
}

/* main() ends its thread, not the process: the kernel shows it as a zombie then. */
void main_thread_ends(void)
{
	static struct other other;

	set_up();
	start(&other, goes_on);
	pthread_exit(NULL);
}
