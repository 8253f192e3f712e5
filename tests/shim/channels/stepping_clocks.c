/* stepping_clocks.c: preloaded before the interposer: clocks as of a virtual machine that is halted
 * and moved. The monotonic one leaps forward by an hour now and then, the other one either way. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EVERY 300 /* calls */
#define LEAP_S 3600

static atomic_uint calls;

int clock_gettime(clockid_t clock, struct timespec *t)
{
	unsigned int n = atomic_fetch_add(&calls, 1);
	long result = syscall(SYS_clock_gettime, clock, t);

	if (clock == CLOCK_MONOTONIC)
		t->tv_sec += (time_t)(n / EVERY) * LEAP_S;
	else if (clock == CLOCK_REALTIME)
		t->tv_sec += n / EVERY % 2 ? LEAP_S : -LEAP_S;
	return (int)result;
}
