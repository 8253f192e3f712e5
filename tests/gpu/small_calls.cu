// small_calls.cu: plain CUDA C that makes many short calls: launches, memsets, events.
//
// small_calls KERNELS.ptx: a program of check_speed, as tests/gpu/speed/program.py says. Prints a
// line of JSON when it is ready, and one for each line that it reads, a number of steps. A step is
// 16 times four launches over 16 KiB and a memset of it, and the record of an event.
#include "driver.cuh"

#define WORDS 4096
#define ROUNDS 16
#define LAUNCHES 4
#define LEAD_IN 10 // of so many steps one more comes first, untimed
#define WARM_S 1.0

static CUfunction add;
static CUstream stream;
static CUdeviceptr words;
static CUevent from, to, behind;

static void launch(void)
{
	unsigned long long n = WORDS;
	unsigned int value = 3, rounds = 1;
	void *params[] = {&words, &n, &value, &rounds};

	CU(cuLaunchKernel(add, WORDS / 256, 1, 1, 256, 1, 1, 0, stream, params, NULL));
}

static void step(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		CU(cuMemsetD32Async(words, 1, WORDS, stream));
		for (int k = 0; k < LAUNCHES; k++)
			launch();
	}
	CU(cuEventRecord(behind, stream));
}

static void run(long steps)
{
	for (long i = 0; i < steps; i++)
		step();
}

static void prepare(const char *ptx)
{
	open_device();
	CU(cuModuleGetFunction(&add, load_ptx(ptx), "add"));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc(&words, WORDS * 4));
	CU(cuEventCreate(&from, CU_EVENT_DEFAULT));
	CU(cuEventCreate(&to, CU_EVENT_DEFAULT));
	CU(cuEventCreate(&behind, CU_EVENT_DISABLE_TIMING));
}

// The seconds of a step, once nothing is new any more.
static double warm_up(void)
{
	double began = now_s();
	long done = 0;

	for (; now_s() - began < WARM_S; done += 4) {
		run(4);
		CU(cuStreamSynchronize(stream));
	}
	return (now_s() - began) / (double)done;
}

// From an idle device to an idle device.
static void segment(long steps)
{
	double began, host;
	float ms;

	run(steps > LEAD_IN ? steps / LEAD_IN : 1);
	CU(cuStreamSynchronize(stream));
	CU(cuEventRecord(from, stream));
	began = now_s();
	run(steps);
	CU(cuEventRecord(to, stream));
	CU(cuStreamSynchronize(stream));
	host = now_s() - began;
	CU(cuEventElapsedTime(&ms, from, to));
	printf("{\"steps\": %ld, \"host_s\": %.9f, \"device_s\": %.9f}\n", steps, host,
	       (double)ms / 1e3);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char line[64];

	if (argc != 2)
		DIE("usage: small_calls KERNELS.ptx");
	prepare(argv[1]);
	printf("{\"ready\": true, \"step_s\": %.9f, \"calls\": {\"cuLaunchKernel\": %d, "
	       "\"cuMemsetD32Async\": %d}}\n",
	       warm_up(), ROUNDS * LAUNCHES, ROUNDS);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		segment(atol(line));
	printf("{\"interposed\": %s}\n", interposed());
	return 0;
}
