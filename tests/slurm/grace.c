/* grace.c: how long Slurm waits between announcing a suspension and stopping the job is up to a
 * test. Preloaded into slurmd, from which slurmstepd has it: its sleep of GRACE_S ends as soon as
 * the file is there that GPU_LEASE_GRACE_OVER names, and not before. Other sleeps are as ever. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define GRACE_S 2u /* of slurmstepd, where slurm.conf says nothing else */
#define LOOK_NS 10000000

static void pause_ns(unsigned int seconds, long ns)
{
	struct timespec time = {seconds, ns};

	while (nanosleep(&time, &time)) {
		/* a signal has interrupted it */
	}
}

unsigned int sleep(unsigned int seconds)
{
	const char *over = getenv("GPU_LEASE_GRACE_OVER");

	if (seconds != GRACE_S || !over)
		pause_ns(seconds, 0);
	else
		while (access(over, F_OK))
			pause_ns(0, LOOK_NS);
	return 0;
}
