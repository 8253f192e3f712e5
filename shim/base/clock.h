/* clock.h: the monotonic clock, and pauses. */
#ifndef GPU_LEASE_CLOCK_H
#define GPU_LEASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The monotonic clock's time in nanoseconds. */
static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* Sleeps for `us` microseconds. It makes the system call itself, because usleep() is a
 * cancellation point: a thread cancelled there would leave its work half done. */
static inline void pause_us(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};

	syscall(SYS_nanosleep, &t, NULL);
}

#endif
