/* suspend_programs.c: what a program does about SIGTSTP, before and after the interposer comes. */
#include "suspend_programs.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 4

volatile sig_atomic_t handled;
static struct sigaction chained;

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

static void own_once(void)
{
	struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESETHAND | SA_RESTART};

	sigaction(SIGTSTP, &action, NULL);
}

static void chain_once(void)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_RESTART};

	action.sa_sigaction = note_and_chain;
	sigaction(SIGTSTP, &action, &chained);
}

void set_blocked(int how)
{
	sigset_t signal;

	sigemptyset(&signal);
	sigaddset(&signal, SIGTSTP);
	sigprocmask(how, &signal, NULL);
}

static void block(void)
{
	set_blocked(SIG_BLOCK);
}

static int terminal = -1;

/* As the task of `srun --pty` is: of a session of its own, with a terminal. */
static void own_terminal(void)
{
	terminal = posix_openpt(O_RDWR | O_NOCTTY);
	if (terminal < 0 || grantpt(terminal) || unlockpt(terminal) || setsid() < 0 ||
	    open(ptsname(terminal), O_RDWR) < 0)
		_exit(7);
}

void type_control_z(void)
{
	if (write(terminal, "\x1a", 1) != 1)
		_exit(7);
}

/* -- containers ------------------------------------------------------------------------------ */

static void become_a_user(void)
{
	if (setresuid(A_USER, A_USER, A_USER) || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
		_exit(7);
}

/* The program is the first process of the namespace. */
static void pids_first(void)
{
	if (unshare(CLONE_NEWPID))
		_exit(7);
	fork_and_end();
}

static void end_with_parent(void)
{
	struct pollfd end = {.fd = to_child[0]};

	while (poll(&end, 1, -1) < 0)
		;
	_exit(0);
}

/* The program is its second process. */
static void pids(void)
{
	if (unshare(CLONE_NEWPID))
		_exit(7);
	if (!fork())
		end_with_parent();
	fork_and_end();
}

/* The program is root there, and outside an ordinary user. */
static void users(void)
{
	FILE *map;

	become_a_user();
	if (unshare(CLONE_NEWUSER) || !(map = fopen("/proc/self/uid_map", "w")) ||
	    fprintf(map, "0 %d 1", A_USER) < 0 || fclose(map))
		_exit(7);
}

static void users_pids(void)
{
	users();
	pids();
}

static void user_pids(void)
{
	pids();
	become_a_user();
}

static void user_pids_first(void)
{
	pids_first();
	become_a_user();
}

static void user_pids_terminal(void)
{
	user_pids();
	own_terminal();
}

/* -- early resumes ---------------------------------------------------------------------------- */

static void take_over_later(void)
{
	signal(SIGCONT, take_over);
}

static bool resumed_early;

/* Stands in for the C library's, so that SIGCONT comes while the handler of SIGTSTP looks who has
 * sent that. */
int open(const char *path, int flags, ...)
{
	if (resumed_early && !strncmp(path, "/proc/", 6))
		kill(getpid(), SIGCONT);
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
}

static void be_resumed_early(void)
{
	resumed_early = true;
}

static void be_resumed_early_in_threads(void)
{
	start_threads();
	be_resumed_early();
}

/* The handler does not keep the signal away while it runs. */
static void chain_open(void)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};

	action.sa_sigaction = note_and_chain;
	sigaction(SIGTSTP, &action, &chained);
}

static const struct one_case CASES[] = {
    {"nothing", nothing, nothing, ROOT, {true, true, true}, 0, 0, ASK},
    {"own-before", own_before, nothing, ROOT, {false, false, false}, 3, 0, ASK},
    {"own-after", nothing, own_before, ROOT, {false, false, false}, 3, 0, ASK},
    {"chains", nothing, chain, ROOT, {true, true, true}, 3, 0, ASK},
    {"takes-over", nothing, take_over_later, ROOT, {true, false, false}, 2, 0, ASK},
    {"ignores-before", ignore, nothing, ROOT, {false, false, false}, 0, 0, ASK},
    {"ignores-after", nothing, ignore, ROOT, {false, false, false}, 0, 0, ASK},
    {"default-after", nothing, leave, ROOT, {true, true, true}, 0, 0, ASK},
    {"threads", nothing, start_threads, ROOT, {true, true, true}, 0, 0, ASK},
    {"fork", nothing, fork_and_end, ROOT, {true, true, true}, 0, 0, ASK},
    {"stepd", nothing, nothing, STEPD, {false, false, false}, 0, 3, ASK},
    {"stepd-threads", nothing, start_threads, STEPD, {false, false, false}, 0, 3, ASK},
    {"stepd-chains", nothing, chain, STEPD, {false, false, false}, 3, 3, ASK},
    {"stepd-own", own_before, nothing, STEPD, {false, false, false}, 3, 0, ASK},
    {"own-once", nothing, own_once, ROOT, {false, true, true}, 1, 0, ASK},
    {"chains-once", nothing, chain_once, ROOT, {true, true, true}, 1, 0, ASK},
    {"stepd-default-after", nothing, leave, STEPD, {true, true, true}, 0, 0, ASK},
    {"stepd-ignores", ignore, nothing, STEPD, {false, false, false}, 0, 0, ASK},
    {"stepd-blocks", nothing, block, STEPD, {false, false, false}, 0, 0, ASK},
    {"stepd-unblocks", nothing, block, STEPD, {false, false, false}, 0, 1, UNBLOCK},
    {"stepd-unblocks-late", nothing, block, STEPD, {false, false, false}, 0, 0, RESUME_AND_UNBLOCK},
    {"chains-open", nothing, chain_open, ROOT, {true, true, true}, 3, 0, ASK},
    {"stepd-chains-open", nothing, chain_open, STEPD, {false, false, false}, 3, 3, ASK},
    {"resumed-early", nothing, be_resumed_early, ROOT, {false, false, false}, 0, 0, ASK},
    {"resumed-early-threads",
     nothing,
     be_resumed_early_in_threads,
     ROOT,
     {false, false, false},
     0,
     0,
     ASK},
    {"stepd-resumed-early", nothing, be_resumed_early, STEPD, {false, false, false}, 0, 3, ASK},
    {"terminal", own_terminal, nothing, ROOT, {false, false, false}, 0, 0, ASK},
    {"stepd-terminal", own_terminal, nothing, STEPD, {false, false, false}, 0, 3, ASK},
    {"pids-user", user_pids, nothing, USER, {true, true, true}, 0, 0, ASK},
    {"pids-typed", user_pids_terminal, nothing, USER, {false, false, false}, 0, 0, TYPE},
    {"pids-stepd", user_pids, nothing, STEPD, {false, false, false}, 0, 3, ASK},
    {"pids-first-user", user_pids_first, nothing, USER, {false, false, false}, 0, 3, ASK},
    {"pids-first-stepd", pids_first, nothing, STEPD, {false, false, false}, 0, 3, ASK},
    {"users-root", users, nothing, ROOT, {true, true, true}, 0, 0, ASK},
    {"users-user", users, nothing, USER, {true, true, true}, 0, 0, ASK},
    {"users-stepd", users, nothing, STEPD, {false, false, false}, 0, 3, ASK},
    {"users-pids-user", users_pids, nothing, USER, {true, true, true}, 0, 0, ASK},
    {"users-pids-stepd", users_pids, nothing, STEPD, {false, false, false}, 0, 3, ASK},
};

const struct one_case *find_case(const char *name)
{
	for (size_t n = 0; n < sizeof(CASES) / sizeof(CASES[0]); n++)
		if (!strcmp(name, CASES[n].name))
			return &CASES[n];
	return NULL;
}
