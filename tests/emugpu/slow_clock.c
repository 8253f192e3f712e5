/* slow_clock.c: preloaded into emugpud: whoever has read the monotonic clock loses its processor
 * for a while, as on a busy machine. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WHILE_NS 3000000

int clock_gettime(clockid_t clock, struct timespec *t)
{
	const struct timespec pause = {.tv_nsec = WHILE_NS};
	long result = syscall(SYS_clock_gettime, clock, t);

	if (clock == CLOCK_MONOTONIC)
		nanosleep(&pause, NULL);
	return (int)result;
}
