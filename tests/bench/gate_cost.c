/* gate_cost.c: what a gated call costs more than the driver's own, in ns of a thread's CPU time.
 *
 * gate_cost THREADS ROUNDS: by turns a batch of direct calls and one through
 * the gate; prints the smallest of each per call, as the mean over threads, and
 * the median of the gated launches, for when something changes meanwhile.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CALLS 100000 /* shorter than the idleness after which a holder yields */
#define MAX_THREADS 64
#define MAX_ROUNDS 10000

typedef CUresult launch_function(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
                                 unsigned int, unsigned int, unsigned int, CUstream, void **,
                                 void **);
typedef CUresult memset_function(CUdeviceptr, unsigned char, size_t, CUstream);

static launch_function *launches[2]; /* direct, gated */
static memset_function *memsets[2];
static int rounds;
static double least[MAX_THREADS][4];      /* launch direct and gated, memset direct and gated */
static double gated_launches[MAX_ROUNDS]; /* of the first thread */

static double cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double launch_batch(launch_function *launch)
{
	double start = cpu_ns();

	for (int i = 0; i < CALLS; i++)
		if (launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL))
			abort();
	return (cpu_ns() - start) / CALLS;
}

static double memset_batch(memset_function *set)
{
	double start = cpu_ns();

	for (int i = 0; i < CALLS; i++)
		if (set(0, 0, 1, NULL))
			abort();
	return (cpu_ns() - start) / CALLS;
}

static void *measure(void *argument)
{
	double *mine = argument;

	for (int r = 0; r < rounds; r++) {
		for (int gated = 0; gated < 2; gated++) {
			double a = launch_batch(launches[gated]), b = memset_batch(memsets[gated]);

			if (gated && mine == least[0])
				gated_launches[r] = a;
			mine[gated] = !r || a < mine[gated] ? a : mine[gated];
			mine[2 + gated] = !r || b < mine[2 + gated] ? b : mine[2 + gated];
		}
	}
	return NULL;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 1;
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	double mean[4] = {0};
	pthread_t threads[MAX_THREADS];

	rounds = argc > 2 ? atoi(argv[2]) : 10;
	if (!driver || n < 1 || n > MAX_THREADS || rounds < 1 || rounds > MAX_ROUNDS)
		return 2;
	launches[0] = (launch_function *)dlsym(driver, "null_launch");
	launches[1] = (launch_function *)dlsym(driver, "cuLaunchKernel");
	memsets[0] = (memset_function *)dlsym(driver, "null_memset");
	memsets[1] = (memset_function *)dlsym(driver, "cuMemsetD8Async");
	if (!launches[0] || launches[0] == launches[1]) {
		fprintf(stderr, "gate_cost: nothing stands before the driver\n");
		return 2;
	}
	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, measure, least[i]))
			return 2;
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < n; i++)
		for (int k = 0; k < 4; k++)
			mean[k] += least[i][k] / n;
	qsort(gated_launches, (size_t)rounds, sizeof(double), compare);
	printf("{\"launch\": [%.2f, %.2f], \"memset\": [%.2f, %.2f], \"median\": %.2f}\n", mean[0],
	       mean[1], mean[2], mean[3], gated_launches[rounds / 2]);
	return 0;
}
