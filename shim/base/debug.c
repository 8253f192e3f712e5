/* debug.c: writes the interposer's messages to stderr, without stdio's locks.
 *
 * A line of debug() starts with the monotonic clock's seconds. System calls are made with
 * syscall(), which is no cancellation point, so writing a line never cancels the thread.
 */
#include "base/debug.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/select.h>
#include <unistd.h>

/* Would a write to stderr succeed at once? If the reader of a pipe has stopped reading, the line is
 * dropped, because a blocked write would hold up the lease. A program that may open no more files
 * (RLIMIT_NOFILE of 0) may not poll either, but may select. */
static bool stderr_accepts_output(void)
{
	struct pollfd out = {STDERR_FILENO, POLLOUT, 0};
	struct timespec now = {0, 0};
	fd_set writable;
	long ready = syscall(SYS_ppoll, &out, 1, &now, NULL, 0);

	if (ready >= 0)
		return ready == 1 && out.revents == POLLOUT;
	FD_ZERO(&writable);
	FD_SET(STDERR_FILENO, &writable);
	return syscall(SYS_pselect6, STDERR_FILENO + 1, NULL, &writable, NULL, &now, NULL) == 1;
}

/* Where a pipe has no reader any more the program gets no signal for our line. */
static void write_without_signal(const char *text, size_t size)
{
	struct timespec now = {0, 0};
	sigset_t broken, before, pending;

	sigemptyset(&broken);
	sigaddset(&broken, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &broken, &before);
	if (syscall(SYS_write, STDERR_FILENO, text, size) < 0 && errno == EPIPE &&
	    !sigismember(&pending, SIGPIPE))
		syscall(SYS_rt_sigtimedwait, &broken, NULL, &now,
		        8 /* bytes of the kernel's set */);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void write_line(bool with_time, const char *format, va_list args)
{
	char text[512];
	int saved_errno = errno, n = snprintf(text, sizeof(text), "gpu-lease[%d]: ", (int)getpid()),
	    m;

	if (with_time)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%.3f ", (double)now_ns() / 1e9);
	m = vsnprintf(text + n, sizeof(text) - (size_t)n - 1, format, args);

	n += m < (int)sizeof(text) - n - 1 ? m : (int)sizeof(text) - n - 2;
	text[n++] = '\n';
	if (stderr_accepts_output())
		write_without_signal(text, (size_t)n);
	errno = saved_errno;
}

static bool enabled;

/* The environment is read before main(), because the program may later change it in another thread.
 */
__attribute__((constructor)) static void read_environment(void)
{
	enabled = getenv("GPU_LEASE_DEBUG") != NULL;
}

void debug(const char *format, ...)
{
	va_list args;

	if (!enabled)
		return;
	va_start(args, format);
	write_line(true, format, args);
	va_end(args);
}

void complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(false, format, args);
	va_end(args);
}
