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

int to_child[2];
static int to_parent[2];
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

/* What has happened so far, whenever it is asked. pid: as the parent sees it. */
struct answer {
	pid_t pid;
	int handled, told;
};

static pid_t pid_outside(void)
{
	char text[16] = "";

	if (readlink("/proc/self", text, sizeof(text) - 1) < 0)
		_exit(7);
	return atoi(text);
}

static void run(const struct one_case *c)
{
	struct answer answer;
	char byte;

	close(to_child[1]); /* its end is seen when the parent is gone */
	c->before();
	if (getsid(0) != getpid()) /* a session of its own has its own group */
		setpgid(0, 0);
	suspend_watch();
	c->after();
	for (;;) {
		answer = (struct answer){pid_outside(), handled, told};
		if (write(to_parent[1], &answer, sizeof(answer)) != sizeof(answer))
			_exit(3);
		if (read(to_child[0], &byte, 1) != 1) /* handlers let it go on */
			_exit(0);
		if (byte == 'u')
			set_blocked(SIG_UNBLOCK);
		if (byte == 'z')
			type_control_z();
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

/* A stopped program is seen as such, however long that takes; one that answers is not. `heard`: so
 * often it has told the daemon in the end, since any of its threads may get the signal. */
static bool stops(pid_t group, pid_t program, bool expected, int heard)
{
	int status;

	if (kill(-group, SIGTSTP))
		exit(6);
	if (!expected) {
		while (ask().told < heard)
			;
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

static void become(enum sender sender)
{
	if (sender == STEPD)
		prctl(PR_SET_NAME, "slurmstepd");
	if (sender == USER && setresuid(A_USER, A_USER, 0))
		exit(7);
}

static const char *const LAST[] = {
    [ASK] = "x", [UNBLOCK] = "u", [RESUME_AND_UNBLOCK] = "u", [TYPE] = "z"};

static int play(const struct one_case *c)
{
	bool tells = c->told == 3 && c->last == ASK; /* at each signal */
	pid_t child = fork(), group;
	struct answer answer;

	if (!child)
		run(c);
	answer = answer_of_program();
	if (answer.pid != child) /* which has ended, and left it to us */
		waitpid(child, NULL, 0);
	group = getpgid(answer.pid);
	become(c->sender);
	for (int n = 0; n < 3; n++)
		if (stops(group, answer.pid, c->stops[n], tells ? n + 1 : 0) != c->stops[n])
			return fail(c->stops[n] ? "it was not stopped once" : "it was stopped", n);
	if (c->last == RESUME_AND_UNBLOCK)
		kill(-group, SIGCONT);
	answer = tell(LAST[c->last]);
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
