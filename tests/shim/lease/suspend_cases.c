/* suspend_cases CASE: what SIGTSTP does to a program that the interposer watches, by suspend.c
 * itself. The program is a child in a process group of its own, as Slurm's tasks are, so that
 * it can be stopped; the parent sends the signals and sees what becomes of it. It has no
 * terminal. Exit status 0: all was as it should be. */
#include "gate/waiting.h"
#include "lease/link.h"
#include "lease/suspend.h"
#include "suspend_programs.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_S 120

static int to_child[2], to_parent[2];
static volatile sig_atomic_t told;

/* -- what suspend.c needs of other rooms -------------------------------------------------- */

void client_wake(void)
{
}

void link_send(const void *message, size_t size)
{
	const struct gl_header *header = message;

	if (header->type == GL_SUSPENDS && size == sizeof(*header))
		told++;
}

/* -- the program ---------------------------------------------------------------------------- */

/* What has happened so far, whenever it is asked. */
struct answer {
	pid_t pid;
	int handled, told;
};

static void run(const struct one_case *c)
{
	struct answer answer;
	pid_t group = getpgid(0);
	char byte;

	close(to_child[1]); /* its end is seen when the parent is gone */
	c->before();
	if (getpgid(0) == group) /* else it is of a session of its own */
		setpgid(0, 0);
	suspend_watch();
	c->after();
	for (;;) {
		answer = (struct answer){getpid(), handled, told};
		if (write(to_parent[1], &answer, sizeof(answer)) != sizeof(answer))
			_exit(3);
		if (read(to_child[0], &byte, 1) != 1) /* handlers let it go on */
			_exit(0);
		if (byte == 'u')
			set_blocked(SIG_UNBLOCK);
		suspend_speak();
	}
}

/* -- its parent ------------------------------------------------------------------------------ */

static struct answer answer_of_program(void)
{
	struct answer answer;

	if (read(to_parent[0], &answer, sizeof(answer)) != sizeof(answer))
		exit(4);
	return answer;
}

static struct answer tell(const char *byte)
{
	if (write(to_child[1], byte, 1) != 1)
		exit(5);
	return answer_of_program();
}

static struct answer ask(void)
{
	return tell("x");
}

/* A stopped program is seen as such, however long that takes; one that answers is not. */
static bool stops(pid_t group, pid_t program, bool expected)
{
	int status;

	if (kill(-group, SIGTSTP))
		exit(6);
	if (!expected) {
		ask();
		return waitpid(program, &status, WUNTRACED | WNOHANG) > 0;
	}
	if (waitpid(program, &status, WUNTRACED) != program || !WIFSTOPPED(status))
		return false;
	kill(-group, SIGCONT);
	ask();
	return waitpid(program, &status, WUNTRACED | WNOHANG) == 0; /* and not once more */
}

static int fail(const char *what, int n)
{
	fprintf(stderr, "%s, after signal %d\n", what, n + 1);
	return 1;
}

static int play(const struct one_case *c)
{
	pid_t group = fork();
	struct answer answer;

	if (!group)
		run(c);
	answer = answer_of_program();
	if (answer.pid != group) /* which has ended, and left it to us */
		waitpid(group, NULL, 0);
	if (c->stepd)
		prctl(PR_SET_NAME, "slurmstepd");
	for (int n = 0; n < 3; n++)
		if (stops(group, answer.pid, c->stops[n]) != c->stops[n])
			return fail(c->stops[n] ? "it was not stopped once" : "it was stopped", n);
	if (c->last == RESUME_AND_UNBLOCK)
		kill(-group, SIGCONT);
	answer = tell(c->last == ASK ? "x" : "u");
	if (answer.handled != c->handled)
		return fail("its own handler was called otherwise", answer.handled);
	if (answer.told != c->told)
		return fail("the daemon was told otherwise", answer.told);
	kill(-group, SIGKILL);
	waitpid(answer.pid, NULL, 0);
	return 0;
}

int main(int argc, char **argv)
{
	const struct one_case *c;
	pid_t leader = fork();
	int status;

	if (leader) /* a session of its own has no terminal */
		return waitpid(leader, &status, 0) == leader && WIFEXITED(status)
		           ? WEXITSTATUS(status)
		           : 2;
	alarm(PATIENCE_S); /* a program that hangs ends with its parent */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (setsid() < 0 || pipe(to_child) || pipe(to_parent))
		return 2;
	c = argc == 2 ? find_case(argv[1]) : NULL;
	return c ? play(c) : 2;
}
