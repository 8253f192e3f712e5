/* suspend.c: Slurm announces that it will stop this process.
 *
 * To suspend a job slurmstepd sends SIGTSTP, waits (suspend_grace_time, 2 s), and then freezes or
 * stops all processes of its step. The usual action of the signal would stop this process at
 * once, with its lease and its memory. So where the program has left the signal alone, we tell
 * the daemon, which takes back both, and leave the stopping to slurmstepd: whatever stops
 * itself here could do so after the resume has come. A SIGTSTP of anybody else does what it
 * always does. A process with a terminal is left alone, since there it is Ctrl-Z, unless it leads
 * its session as the task of `srun --pty` does: the kernel stops no such process by SIGTSTP.
 *
 * A signal that stops as usual does so when its handler gets to it. Whoever sends SIGCONT without
 * having seen the stop (waitpid, as shells do) may be too early, by as long as that takes. It
 * cannot be otherwise: the kernel drops a SIGTSTP for a later SIGCONT only until a handler has it.
 */
#include "lease/suspend.h"

#include "base/clock.h"
#include "base/fork.h"
#include "base/wire.h"
#include "gate/waiting.h"
#include "lease/link.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TELL_NS UINT64_C(3000000000) /* later it may have been resumed */
#define STEPD "slurmstepd\n"

static _Atomic(uint64_t) announced_at; /* by the last signal; 0: there was none */
static _Atomic(pid_t) listens;         /* the process that has a client thread to tell */
static uint64_t told;                  /* of the client thread: the announcement it has told of */

/* -- in the signal's handler: what is safe there, and no more ---------------------------- */

/* "/proc/PID/comm" */
static void comm_path(char *out, pid_t pid)
{
	char digits[16];
	int n = 0;

	memcpy(out, "/proc/", 6);
	out += 6;
	do {
		digits[n++] = (char)('0' + pid % 10);
		pid /= 10;
	} while (pid);
	while (n)
		*out++ = digits[--n];
	memcpy(out, "/comm", 6);
}

/* Only root's processes are believed by their name. One that is hidden is slurmstepd if it is
 * our parent. */
static bool is_slurmstepd(const siginfo_t *info)
{
	char path[32], name[sizeof(STEPD)] = "";
	ssize_t n;
	int fd;

	if (info->si_code != SI_USER || info->si_uid || info->si_pid <= 0)
		return false;
	comm_path(path, info->si_pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return info->si_pid == getppid();
	n = read(fd, name, sizeof(name) - 1);
	close(fd);
	return n == sizeof(STEPD) - 1 && !memcmp(name, STEPD, sizeof(STEPD) - 1);
}

static void handle(int number, siginfo_t *info, void *context);

static bool is_default(const struct sigaction *action)
{
	return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == SIG_DFL;
}

static void set_ours(void)
{
	struct sigaction ours = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};

	ours.sa_sigaction = handle;
	sigemptyset(&ours.sa_mask);
	sigaction(SIGTSTP, &ours, NULL);
}

/* The action that was there may be the program's, which calls ours. While it goes on again the
 * program may have set another one, in a handler of SIGCONT, which is left as it is. One that
 * was usual is another thread's that stops, and that puts back what was before. */
static void put_back(const struct sigaction *before)
{
	struct sigaction now;

	if (!is_default(before) && !sigaction(SIGTSTP, NULL, &now) && is_default(&now))
		sigaction(SIGTSTP, before, NULL);
}

/* The signal is blocked in its handler: it takes its usual action when it is let through. */
static void stop_as_usual(void)
{
	struct sigaction usual = {.sa_handler = SIG_DFL}, before;
	sigset_t signal, blocked;

	sigemptyset(&usual.sa_mask);
	sigaction(SIGTSTP, &usual, &before);
	syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGTSTP);
	sigemptyset(&signal);
	sigaddset(&signal, SIGTSTP);
	pthread_sigmask(SIG_UNBLOCK, &signal, &blocked);
	pthread_sigmask(SIG_SETMASK, &blocked, NULL); /* it goes on */
	put_back(&before);
}

static void handle(int number, siginfo_t *info, void *context)
{
	int saved_errno = errno;

	(void)number;
	(void)context;
	if (atomic_load(&listens) == getpid() && is_slurmstepd(info)) {
		atomic_store(&announced_at, now_ns());
		client_wake();
	} else {
		stop_as_usual();
	}
	errno = saved_errno;
}

/* -- for the client thread ------------------------------------------------------------- */

static bool has_terminal(void)
{
	int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static bool leads_session(void)
{
	return getsid(0) == getpid();
}

void suspend_watch(void)
{
	struct sigaction now;

	if (sigaction(SIGTSTP, NULL, &now) || (has_terminal() && !leads_session()))
		return;
	if (is_default(&now))
		set_ours();
	atomic_store(&listens, getpid());
}

void suspend_speak(void)
{
	uint64_t announced = atomic_load(&announced_at);
	struct gl_header message = message_header(GL_SUSPENDS, sizeof(message));

	if (announced == told)
		return;
	told = announced;
	if (now_ns() - announced < TELL_NS)
		link_send(&message, sizeof(message));
}

void suspend_forget_daemon(void)
{
	told = 0;
}

static void in_child(void)
{
	atomic_store(&announced_at, 0);
	told = 0;
}
FORK_WATCH(in_child);
