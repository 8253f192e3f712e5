/* debug.c: writes the interposer's messages to stderr, without stdio's locks.
 *
 * A line of debug() starts with the monotonic clock's seconds. System calls are made with
 * syscall(), which is no cancellation point, so writing a line never cancels the thread.
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

/* Would a write to stderr succeed at once? If the reader of a pipe has stopped reading, the line is
 * dropped, because a blocked write would hold up the lease. */
static bool stderr_accepts_output(void)
{
	struct pollfd out = {STDERR_FILENO, POLLOUT, 0};
	struct timespec now = {0, 0};

	return syscall(SYS_ppoll, &out, 1, &now, NULL, 0) == 1 && out.revents == POLLOUT;
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
		syscall(SYS_write, STDERR_FILENO, text, (size_t)n);
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
