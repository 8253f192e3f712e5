/* shortage_wait.c: how long an allocation waits for room (shim/memory/shortage.c), in simulated
 * time: the clock, the gate and the driver are fakes.
 *
 * shortage_wait AWAY_S LEASED_S: the daemon is away from 5 s on, for so many seconds; and the
 * process waits for a lease for so long, once, after 5 s; -1: it may not wait for one. Prints after
 * how many seconds the allocation is given up.
 */
#include "base/debug.h"
#include "driver/devices.h"
#include "gate/gate.h"
#include "memory/ranges.h"
#include "memory/shortage.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define S UINT64_C(1000000000)
#define BEGAN (S)

static uint64_t now = BEGAN, away_from, back, leased;

int clock_gettime(clockid_t clock, struct timespec *out)
{
	(void)clock;
	*out = (struct timespec){(time_t)(now / S), (long)(now % S)};
	return 0;
}

/* A pause: pause_us() makes the call itself. */
long syscall(long number, ...)
{
	const struct timespec *wanted;
	va_list args;

	va_start(args, number);
	wanted = va_arg(args, const struct timespec *);
	va_end(args);
	now += (uint64_t)wanted->tv_sec * S + (uint64_t)wanted->tv_nsec;
	shortage_daemon_away(now >= away_from && now < back);
	return 0;
}

void debug(const char *format, ...)
{
	(void)format;
}

CUresult gate_wait(bool memory)
{
	(void)memory;
	if (now >= BEGAN + 5 * S) {
		now += leased;
		leased = 0;
	}
	return CUDA_SUCCESS;
}

const uint8_t *device_uuid(CUdevice device)
{
	static const uint8_t uuid[16];

	(void)device;
	return uuid;
}

void memory_count(CUdevice device, enum memory_row row, int64_t bytes)
{
	(void)device;
	(void)row;
	(void)bytes;
}

int main(int argc, char **argv)
{
	struct shortage shortage = {0};
	uint64_t since = BEGAN;
	bool may_wait;

	if (argc != 3)
		return 2;
	away_from = BEGAN + 5 * S;
	may_wait = atoi(argv[2]) >= 0;
	leased = may_wait ? strtoull(argv[2], NULL, 10) * S : 0;
	back = away_from + strtoull(argv[1], NULL, 10) * S;
	while (may_wait ? shortage_wait(&shortage, CUDA_ERROR_OUT_OF_MEMORY, 0, 1)
	                : shortage_pause(&since))
		;
	printf("%llu\n", (unsigned long long)((now - BEGAN + S / 2) / S));
	return 0;
}
