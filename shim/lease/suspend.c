/* suspend.c: Slurm announces that it will stop this process.
 *
 * To suspend a job, slurmstepd sends SIGTSTP, waits (suspend_grace_time, 2 s), and then freezes or
 * stops all processes of its step. By default the signal would stop this process at once, with its
 * lease and its memory. So if the program has not set an action for the signal, we handle it: we
 * tell the daemon, which takes lease and memory back, and leave the stopping to slurmstepd. (A
 * process that stopped itself might do so after the resume.) A SIGTSTP of any other sender
 * (signal_sender.h) stops the process as usual. A process with a terminal is left alone, since
 * there SIGTSTP is Ctrl-Z, unless it leads its session, as the task of `srun --pty` does: the
 * kernel never stops a session leader by SIGTSTP.
 *
 * A SIGTSTP of another sender stops the process only after our handler has found out whose it is. A
 * SIGCONT may come before that, from a sender that has not waited for the stop as shells do
 * (waitpid). So the handler first raises the signal again, blocked: as long as it is pending, the
 * kernel discards it when a SIGCONT comes, as it does for a process without a handler. Only a
 * SIGCONT that comes between the kernel's taking the signal and the handler's first calls is too
 * early to be seen: some 2 us, most of them the kernel's. To block SIGCONT in the handler and look
 * for it does not help, since the kernel blocks it late, another thread may take it, and to raise a
 * stop signal discards it.
 *
 * A program that waits when the signal comes is interrupted as by any handler: poll(), select(),
 * nanosleep() and sem_wait() return early (signal(7)), which a stop alone would not do.
 */
#include "lease/suspend.h"

#include "base/clock.h"
#include "base/fork.h"
#include "base/wire.h"
#include "gate/waiting.h"
#include "lease/link.h"
#include "lease/signal_sender.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TELL_NS UINT64_C(3000000000) /* an older announcement may be out of date */

static _Atomic(uint64_t) announced_at; /* when the last signal came, ns; 0: none has */
static _Atomic(pid_t) listens;         /* the process that has a client thread to tell */
static uint64_t told; /* announced_at of the last SUSPENDS; only the client thread uses it */

/* -- the signal's handler: only async-signal-safe functions ------------------------------- */

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

/* Restores the action that was set before the stop: ours, or one of the program's that calls ours.
 * If the program has set another one meanwhile (in a handler of SIGCONT), that one stays. If the
 * action before was the default one, another thread is stopping the process too, and that thread
 * restores it. */
static void put_back(const struct sigaction *before)
{
	struct sigaction now;

	if (!is_default(before) && !sigaction(SIGTSTP, NULL, &now) && is_default(&now))
		sigaction(SIGTSTP, before, NULL);
}

/* The signal that was raised again has its default action as soon as it is unblocked, unless a
 * SIGCONT has come since. */
static void stop_as_usual(const sigset_t *signal)
{
	struct sigaction usual = {.sa_handler = SIG_DFL}, before;

	sigemptyset(&usual.sa_mask);
	sigaction(SIGTSTP, &usual, &before);
	pthread_sigmask(SIG_UNBLOCK, signal, NULL);
	pthread_sigmask(SIG_BLOCK, signal, NULL); /* the process has been continued */
	put_back(&before);
}

/* Takes the signal that was raised again, so that it stops nothing. */
static void take_back(const sigset_t *signal)
{
	static const struct timespec now;

	syscall(SYS_rt_sigtimedwait, signal, NULL, &now, _NSIG / 8);
}

/* A handler of the program that calls this one may not have blocked the signal. */
static void handle(int number, siginfo_t *info, void *context)
{
	int saved_errno = errno;
	sigset_t signal, blocked;

	(void)number;
	(void)context;
	sigemptyset(&signal);
	sigaddset(&signal, SIGTSTP);
	pthread_sigmask(SIG_BLOCK, &signal, &blocked);
	syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGTSTP);
	if (atomic_load(&listens) == getpid() && signal_is_slurmstepds(info)) {
		take_back(&signal);
		atomic_store(&announced_at, now_ns());
		client_wake();
	} else {
		stop_as_usual(&signal);
	}
	pthread_sigmask(SIG_SETMASK, &blocked, NULL);
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
	signal_sender_init();
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
