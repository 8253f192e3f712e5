/* debug.c: the only two ways to say anything, both without stdio's locks.
 *
 * What is said for debugging starts with the monotonic clock's seconds. A thread that
 * says something is not cancelled for it: system calls by syscall() are no such moments.
 */
#include "base/debug.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A reader who has stopped reading must not stop the lease. */
static bool can_be_told(void)
{
	struct pollfd out = {STDERR_FILENO, POLLOUT, 0};
	struct timespec now = {0, 0};

	return syscall(SYS_ppoll, &out, 1, &now, NULL, 0) == 1 && out.revents == POLLOUT;
}

static void say(bool when, const char *format, va_list args)
{
	char text[512];
	int saved_errno = errno, n = snprintf(text, sizeof(text), "gpu-lease[%d]: ", (int)getpid()),
	    m;

	if (when)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%.3f ", (double)now_ns() / 1e9);
	m = vsnprintf(text + n, sizeof(text) - (size_t)n - 1, format, args);

	n += m < (int)sizeof(text) - n - 1 ? m : (int)sizeof(text) - n - 2;
	text[n++] = '\n';
	if (can_be_told())
		syscall(SYS_write, STDERR_FILENO, text, (size_t)n);
	errno = saved_errno;
}

static bool enabled;

/* Before the program runs: later it may change its environment in another thread. */
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
	say(true, format, args);
	va_end(args);
}

void complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(false, format, args);
	va_end(args);
}
