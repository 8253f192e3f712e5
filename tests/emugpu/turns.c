/* turns.c: programs of which several share a GPU, for measurements.
 *
 *   turns service KERNEL_US PERIOD_US COUNT   a kernel every PERIOD_US on average (half to one and
 * a half times that), whether the last one has ended or not; for each the us until its end turns
 * batch KERNEL_US DEPTH               kernels back to back, of which DEPTH wait; at the end how
 * many, and in how many us
 *
 * Each prints "ready" and waits for a line. A batch ends at the next line. */
#include <cuda.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEPTH_MOST 64
#define CHECK(call)                                                                                \
	do {                                                                                       \
		int check_result = (int)(call);                                                    \
		if (check_result) {                                                                \
			fprintf(stderr, "turns: %s: %d\n", #call, check_result);                   \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static CUmodule module;

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void sleep_until(double us)
{
	struct timespec t = {(time_t)(us / 1e6), (long)(us * 1e3) % 1000000000L};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void set_up(void)
{
	static char text[1 << 16];
	FILE *file = fopen(KERNELS, "re");
	CUcontext context;
	CUdevice device;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(!file || !fread(text, 1, sizeof(text) - 1, file));
	fclose(file);
	CHECK(cuModuleLoadData(&module, text));
}

static void spin(uint64_t ns, CUstream stream)
{
	void *parameters[] = {&ns};
	CUfunction function;

	CHECK(cuModuleGetFunction(&function, module, "spin"));
	CHECK(cuLaunchKernel(function, 1056, 1, 1, 256, 1, 1, 0, stream, parameters, NULL));
}

static void begin(void)
{
	puts("ready");
	fflush(stdout);
	CHECK(getchar() == EOF);
}

static bool told(void)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};

	return poll(&input, 1, 0) > 0;
}

static void service(double kernel_us, double period_us, int count)
{
	double at, awake;

	spin(1, NULL);
	CHECK(cuCtxSynchronize());
	begin();
	at = now_us();
	for (int i = 0; i < count; i++) {
		at += period_us * (0.5 + (double)random() / (double)RAND_MAX);
		awake = now_us();
		if (awake < at) { /* that this program wakes late is not the GPU's time */
			sleep_until(at);
			awake = now_us();
		} else {
			awake = at;
		}
		spin((uint64_t)(kernel_us * 1e3), NULL);
		CHECK(cuCtxSynchronize());
		printf("%.1f\n", now_us() - awake);
	}
}

static void batch(double kernel_us, int depth)
{
	CUevent ends[DEPTH_MOST];
	double start;
	long n = 0;

	for (int i = 0; i < depth; i++)
		CHECK(cuEventCreate(&ends[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
	spin(1, NULL);
	CHECK(cuCtxSynchronize());
	begin();
	start = now_us();
	for (; !told(); n++) {
		if (n >= depth)
			CHECK(cuEventSynchronize(ends[n % depth]));
		spin((uint64_t)(kernel_us * 1e3), NULL);
		CHECK(cuEventRecord(ends[n % depth], NULL));
	}
	CHECK(cuCtxSynchronize());
	printf("%ld %.0f\n", n, now_us() - start);
}

int main(int argc, char **argv)
{
	double kernel_us = argc > 3 ? atof(argv[2]) : 0;
	int depth = argc == 4 ? atoi(argv[3]) : 0;

	set_up();
	if (argc == 5 && !strcmp(argv[1], "service")) {
		service(kernel_us, atof(argv[3]), atoi(argv[4]));
	} else if (argc == 4 && !strcmp(argv[1], "batch") && depth > 0 && depth <= DEPTH_MOST) {
		batch(kernel_us, depth);
	} else {
		fputs("usage: turns service KERNEL_US PERIOD_US COUNT | batch KERNEL_US DEPTH\n",
		      stderr);
		return 2;
	}
	return 0;
}
