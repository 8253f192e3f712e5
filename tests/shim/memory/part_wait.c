/* part_wait.c: how long a process waits for a part of shared memory (shim/memory/shared_parts.c),
 * in simulated time: poll() and the clock are fakes.
 *
 * part_wait silent|signals|stopped|again: no part comes; no part comes, and a signal interrupts
 * every poll() after 10 ms; the whole job is stopped for a day, and then the part comes; memory
 * that was mapped before comes after a day. Prints each message with its time, and the result.
 */
#include "base/debug.h"
#include "memory/shared_parts.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define DAY_MS INT64_C(86400000)

static const char *happens;
static int64_t now_ms;
static long looks;

int clock_gettime(clockid_t clock, struct timespec *out)
{
	(void)clock;
	*out = (struct timespec){now_ms / 1000, now_ms % 1000 * 1000000};
	return 0;
}

int poll(struct pollfd *files, nfds_t n, int ms)
{
	(void)files;
	(void)n;
	looks++;
	if (!strcmp(happens, "signals")) {
		now_ms += 10;
		errno = EINTR;
		return -1;
	}
	if ((!strcmp(happens, "stopped") && looks > 1) || now_ms >= DAY_MS)
		return 1;
	now_ms += strcmp(happens, "stopped") ? ms : DAY_MS;
	return 0;
}

void complain(const char *format, ...)
{
	va_list args;

	printf("%lld ms: ", (long long)now_ms);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

int main(int argc, char **argv)
{
	struct shared_part part;
	int files[SHARED_AT_ONCE];
	CUresult result;
	size_t n;

	if (argc != 2)
		return 2;
	happens = argv[1];
	/* There is no such descriptor, so the part that has come cannot be read. */
	result = part_receive(-1, !strcmp(happens, "again"), &part, files, &n);
	printf("result %d after %lld ms and %ld looks\n", (int)result, (long long)now_ms, looks);
	return 0;
}
