/* suspend_programs.c: what a program does about SIGTSTP, before and after the interposer comes. */
#include "suspend_programs.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
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

/* As the task of `srun --pty` is: of a session of its own, with a terminal. */
static void own_terminal(void)
{
	int terminal = posix_openpt(O_RDWR | O_NOCTTY);

	if (terminal < 0 || grantpt(terminal) || unlockpt(terminal) || setsid() < 0 ||
	    open(ptsname(terminal), O_RDWR) < 0)
		_exit(7);
}

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
    {"nothing", nothing, nothing, false, {true, true, true}, 0, 0, ASK},
    {"own-before", own_before, nothing, false, {false, false, false}, 3, 0, ASK},
    {"own-after", nothing, own_before, false, {false, false, false}, 3, 0, ASK},
    {"chains", nothing, chain, false, {true, true, true}, 3, 0, ASK},
    {"takes-over", nothing, take_over_later, false, {true, false, false}, 2, 0, ASK},
    {"ignores-before", ignore, nothing, false, {false, false, false}, 0, 0, ASK},
    {"ignores-after", nothing, ignore, false, {false, false, false}, 0, 0, ASK},
    {"default-after", nothing, leave, false, {true, true, true}, 0, 0, ASK},
    {"threads", nothing, start_threads, false, {true, true, true}, 0, 0, ASK},
    {"fork", nothing, fork_and_end, false, {true, true, true}, 0, 0, ASK},
    {"stepd", nothing, nothing, true, {false, false, false}, 0, 3, ASK},
    {"stepd-threads", nothing, start_threads, true, {false, false, false}, 0, 3, ASK},
    {"stepd-chains", nothing, chain, true, {false, false, false}, 3, 3, ASK},
    {"stepd-own", own_before, nothing, true, {false, false, false}, 3, 0, ASK},
    {"own-once", nothing, own_once, false, {false, true, true}, 1, 0, ASK},
    {"chains-once", nothing, chain_once, false, {true, true, true}, 1, 0, ASK},
    {"stepd-default-after", nothing, leave, true, {true, true, true}, 0, 0, ASK},
    {"stepd-ignores", ignore, nothing, true, {false, false, false}, 0, 0, ASK},
    {"stepd-blocks", nothing, block, true, {false, false, false}, 0, 0, ASK},
    {"stepd-unblocks", nothing, block, true, {false, false, false}, 0, 1, UNBLOCK},
    {"stepd-unblocks-late", nothing, block, true, {false, false, false}, 0, 0, RESUME_AND_UNBLOCK},
    {"chains-open", nothing, chain_open, false, {true, true, true}, 3, 0, ASK},
    {"stepd-chains-open", nothing, chain_open, true, {false, false, false}, 3, 3, ASK},
    {"resumed-early", nothing, be_resumed_early, false, {false, false, false}, 0, 0, ASK},
    {"resumed-early-threads",
     nothing,
     be_resumed_early_in_threads,
     false,
     {false, false, false},
     0,
     0,
     ASK},
    {"stepd-resumed-early", nothing, be_resumed_early, true, {false, false, false}, 0, 3, ASK},
    {"terminal", own_terminal, nothing, false, {false, false, false}, 0, 0, ASK},
    {"stepd-terminal", own_terminal, nothing, true, {false, false, false}, 0, 3, ASK},
};

const struct one_case *find_case(const char *name)
{
	for (size_t n = 0; n < sizeof(CASES) / sizeof(CASES[0]); n++)
		if (!strcmp(name, CASES[n].name))
			return &CASES[n];
	return NULL;
}
