/* component.c: gpu-lease-component [-s SIGNAL] COMMAND [ARGUMENT...], which runs a component of a
 * chain that does not change its part of the multiprocessors by itself. When the daemon wants
 * another part, it sends the component a signal, and starts it again once that has ended it. It
 * lives as long as the component is wanted, so the daemon knows the chain by it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PERCENTAGE "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#define WHOLE 100
#define LOOK_NS 100000000L
#define CANNOT_RUN 126
#define NOT_FOUND 127

static void (*ask_part)(unsigned int *percent, unsigned int *begins);
static int ends_by = SIGTERM;  /* the signal that ends the component */
static sigset_t taken, before; /* what this process waits for, and what it had blocked */
static bool over;              /* somebody has told it to end: nothing is started again */
static const int ENDING[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

static unsigned int part(void)
{
	unsigned int percent, begins;

	ask_part(&percent, &begins);
	return percent;
}

__attribute__((noreturn)) static void execute(char **command)
{
	execvp(command[0], command);
	fprintf(stderr, "gpu-lease-component: %s: %s\n", command[0], strerror(errno));
	_exit(errno == ENOENT ? NOT_FOUND : CANNOT_RUN);
}

/* With less than all multiprocessors; otherwise as this process was started. */
static pid_t start(char **command, unsigned int percent, const char *first)
{
	pid_t parent = getpid(), pid;
	char text[16];

	snprintf(text, sizeof(text), "%u", percent);
	if (percent < WHOLE)
		setenv(PERCENTAGE, text, 1);
	else if (first)
		setenv(PERCENTAGE, first, 1);
	else
		unsetenv(PERCENTAGE);
	pid = fork();
	if (pid)
		return pid;
	sigprocmask(SIG_SETMASK, &before, NULL);
	prctl(PR_SET_PDEATHSIG, (unsigned long)ends_by);
	if (getppid() != parent)
		_exit(128 + ends_by);
	execute(command);
}

/* Whoever signals a step or a terminal's programs signals the component as well; but who knows only
 * this process means both. */
static void pass_on(const siginfo_t *what, pid_t pid)
{
	over = true;
	if (what->si_code <= 0 && what->si_uid == getuid())
		kill(pid, what->si_signo);
}

/* Its status, as waitpid() says it. *told: it was told to end, as it is to have another part. */
static int await_end(pid_t pid, unsigned int has, bool *told)
{
	const struct timespec look = {0, LOOK_NS};
	siginfo_t what;
	int status;

	for (*told = false;;) {
		if (sigtimedwait(&taken, &what, &look) > 0 && what.si_signo != SIGCHLD)
			pass_on(&what, pid);
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		if (*told || over || part() == has)
			continue;
		*told = true;
		kill(pid, ends_by);
	}
}

static bool ended_as_told(int status)
{
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == ends_by;
	return !WEXITSTATUS(status) || WEXITSTATUS(status) == 128 + ends_by;
}

/* As the component has. */
__attribute__((noreturn)) static void end(int status)
{
	if (WIFSIGNALED(status)) {
		signal(WTERMSIG(status), SIG_DFL);
		sigprocmask(SIG_SETMASK, &before, NULL);
		raise(WTERMSIG(status));
		exit(128 + WTERMSIG(status));
	}
	exit(WEXITSTATUS(status));
}

__attribute__((noreturn)) static void usage(void)
{
	fputs(
	    "usage: gpu-lease-component [-s SIGNAL] COMMAND [ARGUMENT...]\n"
	    "SIGNAL ends the component, which is then started again: TERM (15, the default), INT, "
	    "USR1, or another number\n",
	    stderr);
	exit(2);
}

static int signal_of(const char *text)
{
	static const struct {
		const char *name;
		int number;
	} names[] = {{"TERM", SIGTERM}, {"INT", SIGINT},   {"HUP", SIGHUP},
	             {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"QUIT", SIGQUIT}};
	char *rest;
	long number = strtol(text, &rest, 10);

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(text + (strncmp(text, "SIG", 3) ? 0 : 3), names[i].name))
			return names[i].number;
	if (rest == text || *rest || number < 1 || number > SIGRTMAX || number == SIGSTOP)
		usage();
	return (int)number;
}

int main(int argc, char **argv)
{
	const char *first = getenv(PERCENTAGE);
	int option, status;
	bool told;

	while ((option = getopt(argc, argv, "+s:")) != -1) {
		if (option != 's')
			usage();
		ends_by = signal_of(optarg);
	}
	if (optind == argc)
		usage();
	*(void **)&ask_part = dlsym(RTLD_DEFAULT, "gpu_lease_chain_ask_part");
	if (!ask_part) /* in no job that shares a GPU */
		execute(argv + optind);
	first = first ? strdup(first) : NULL;
	sigemptyset(&taken);
	sigaddset(&taken, SIGCHLD);
	for (size_t i = 0; i < sizeof(ENDING) / sizeof(*ENDING); i++)
		sigaddset(&taken, ENDING[i]);
	sigprocmask(SIG_BLOCK, &taken, &before);
	do {
		unsigned int has = part();
		pid_t pid = start(argv + optind, has, first);

		if (pid < 0) {
			perror("gpu-lease-component");
			return CANNOT_RUN;
		}
		status = await_end(pid, has, &told);
	} while (told && !over && ended_as_told(status));
	end(status);
}
