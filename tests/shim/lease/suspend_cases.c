/* suspend_cases CASE: what SIGTSTP does to a program that the interposer watches, by suspend.c
 * itself. The program is a child in a process group of its own, as Slurm's tasks are, so that
 * it can be stopped; the parent sends the signals and sees what becomes of it. It has no
 * terminal. Exit status 0: all was as it should be. */
#include "gate/waiting.h"
#include "lease/link.h"
#include "lease/suspend.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define PATIENCE_S 120

static int to_child[2], to_parent[2];
static volatile sig_atomic_t handled, continued, told;
static struct sigaction chained;

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

static void note(int number)
{
	(void)number;
	handled++;
}

static void note_and_chain(int number, siginfo_t *info, void *context)
{
	handled++;
	if (chained.sa_flags & SA_SIGINFO)
		chained.sa_sigaction(number, info, context);
}

static void take_over(int number)
{
	(void)number;
	continued++;
	signal(SIGTSTP, note);
}

static void chain(void)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART};

	action.sa_sigaction = note_and_chain;
	sigemptyset(&action.sa_mask);
	sigaction(SIGTSTP, &action, &chained);
}

static void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void start_threads(void)
{
	pthread_t thread;

	for (int n = 0; n < THREADS; n++)
		if (pthread_create(&thread, NULL, wait_for_ever, NULL))
			abort();
}

/* The child is the program from here on, in the same group. */
static void fork_and_end(void)
{
	if (fork())
		_exit(0);
}

static void nothing(void)
{
}

static void own_before(void)
{
	signal(SIGTSTP, note);
}

static void ignore(void)
{
	signal(SIGTSTP, SIG_IGN);
}

static void leave(void)
{
	signal(SIGTSTP, SIG_DFL);
}

static void take_over_later(void)
{
	signal(SIGCONT, take_over);
}

/* before, after: what the program does before the interposer comes, and after. stops: whether
 * each of three signals stops it. handled: calls of its own handler then. told: how often
 * the daemon has been told. stepd: the signals come from slurmstepd. */
static const struct one_case {
	const char *name;
	void (*before)(void), (*after)(void);
	bool stepd, stops[3];
	int handled, told;
} CASES[] = {
    {"nothing", nothing, nothing, false, {true, true, true}, 0, 0},
    {"own-before", own_before, nothing, false, {false, false, false}, 3, 0},
    {"own-after", nothing, own_before, false, {false, false, false}, 3, 0},
    {"chains", nothing, chain, false, {true, true, true}, 3, 0},
    {"takes-over", nothing, take_over_later, false, {true, false, false}, 2, 0},
    {"ignores-before", ignore, nothing, false, {false, false, false}, 0, 0},
    {"ignores-after", nothing, ignore, false, {false, false, false}, 0, 0},
    {"default-after", nothing, leave, false, {true, true, true}, 0, 0},
    {"threads", nothing, start_threads, false, {true, true, true}, 0, 0},
    {"fork", nothing, fork_and_end, false, {true, true, true}, 0, 0},
    {"stepd", nothing, nothing, true, {false, false, false}, 0, 3},
    {"stepd-threads", nothing, start_threads, true, {false, false, false}, 0, 3},
    {"stepd-chains", nothing, chain, true, {false, false, false}, 3, 3},
    {"stepd-own", own_before, nothing, true, {false, false, false}, 3, 0},
};

/* What has happened so far, whenever it is asked. */
struct answer {
	pid_t pid;
	int handled, continued, told;
};

static void run(const struct one_case *c)
{
	struct answer answer;
	char byte;

	close(to_child[1]); /* its end is seen when the parent is gone */
	setpgid(0, 0);
	c->before();
	suspend_watch();
	c->after();
	for (;;) {
		answer = (struct answer){getpid(), handled, continued, told};
		if (write(to_parent[1], &answer, sizeof(answer)) != sizeof(answer))
			_exit(3);
		if (read(to_child[0], &byte, 1) != 1) /* handlers let it go on */
			_exit(0);
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

static struct answer ask(void)
{
	if (write(to_child[1], "x", 1) != 1)
		exit(5);
	return answer_of_program();
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
	answer = ask();
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
	for (size_t n = 0; argc == 2 && n < sizeof(CASES) / sizeof(CASES[0]); n++)
		if (!strcmp(argv[1], CASES[n].name))
			return play(&CASES[n]);
	return 2;
}
