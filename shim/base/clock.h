/* clock.h: the monotonic clock, and pauses. */
#ifndef GPU_LEASE_CLOCK_H
#define GPU_LEASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Of the monotonic clock. */
static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* usleep() would be a moment at which a thread may be cancelled, with half of its work done. */
static inline void pause_us(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};

	syscall(SYS_nanosleep, &t, NULL);
}

#endif
