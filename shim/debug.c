/* debug.c: the only two ways to say anything, both without stdio's locks.
 *
 * What is said for debugging starts with the monotonic clock's seconds.
 */
#include "shim.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A reader who has stopped reading must not stop the lease. */
static bool can_be_told(void)
{
	struct pollfd out = {STDERR_FILENO, POLLOUT, 0};

	return poll(&out, 1, 0) == 1 && out.revents == POLLOUT;
}

static void say(bool when, const char *format, va_list args)
{
	char text[512];
	int kept = errno, n = snprintf(text, sizeof(text), "gpu-lease[%d]: ", (int)getpid()), m;

	if (when)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%.3f ", (double)now_ns() / 1e9);
	m = vsnprintf(text + n, sizeof(text) - (size_t)n - 1, format, args);

	n += m < (int)sizeof(text) - n - 1 ? m : (int)sizeof(text) - n - 2;
	text[n++] = '\n';
	if (can_be_told() && write(STDERR_FILENO, text, (size_t)n) < 0) {
		/* nobody to tell */
	}
	errno = kept;
}

void debug(const char *format, ...)
{
	static atomic_int enabled = -1;
	va_list args;

	if (enabled < 0)
		enabled = getenv("GPU_LEASE_DEBUG") != NULL;
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
