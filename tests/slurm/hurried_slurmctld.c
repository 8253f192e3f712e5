/* hurried_slurmctld.c: what slurmctld looks at again and again it sees sooner. Preloaded into it.
 *
 * Its main thread goes through all that is periodic once a second: it sleeps ten times for a tenth
 * of one, and asks difftime() of each thing whether its time has come. So a job that is submitted
 * or may begin again starts after up to a second, and one whose time limit or preemption's grace is
 * over goes on for up to PERIODIC_TIMEOUT more. Here it sleeps for a tenth as long, and
 * PERIODIC_TIMEOUT has passed a tenth of it after the last look. Other threads, and spans that are
 * longer or shorter, are as ever; so is a release that waits in another way. */
#include <time.h>
#include <unistd.h>

#define PAUSE_US 100000
#define PERIODIC_TIMEOUT 30
#define SOONER 10

static int is_main_thread(void)
{
	return gettid() == getpid();
}

int usleep(useconds_t us)
{
	const useconds_t pause = us == PAUSE_US && is_main_thread() ? us / SOONER : us;
	const struct timespec time = {pause / 1000000, pause % 1000000 * 1000L};

	return nanosleep(&time, NULL);
}

double difftime(time_t end, time_t begin)
{
	double s = (double)(end - begin);

	if (s >= PERIODIC_TIMEOUT / SOONER && s < PERIODIC_TIMEOUT && is_main_thread())
		return PERIODIC_TIMEOUT;
	return s;
}
