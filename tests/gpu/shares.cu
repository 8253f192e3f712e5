// shares.cu: a job that always wants the GPU, and how much it gets done in every second.
//
// shares KERNELS.ptx KERNEL AMOUNT QUEUED [0]: one kernel after the other, with QUEUED submitted
// ahead. KERNEL: spin, for AMOUNT ns each, or add, AMOUNT passes over its memory each. It prints
// `ready`; for each line of its input, a number of seconds, it works for so long and prints a line
// of JSON with the kernels that finished in every second of the clock. So what it does alone and
// what it does beside others is measured in the same process, with the same memory. With 0 it finds
// out how many ms a kernel takes when it is alone, and ends.
#include "driver.cuh"

#include <map>

#define WORDS (UINT64_C(1) << 20)
#define MOST_QUEUED 1000 // a launch blocks once 1024 wait on a stream
#define SAMPLES 200

static CUfunction spin, add;
static CUdeviceptr buffer;
static CUstream stream;
static bool spins;
static unsigned long long amount;

static void submit(void)
{
	unsigned long long words = WORDS;
	unsigned int value = 1, rounds = (unsigned int)amount;
	void *of_spin[] = {&amount}, *of_add[] = {&buffer, &words, &value, &rounds};

	if (spins)
		CU(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, of_spin, NULL));
	else
		CU(cuLaunchKernel(add, 1024, 1, 1, 256, 1, 1, 0, stream, of_add, NULL));
}

static void prepare(const char *ptx)
{
	CUmodule module;

	open_device();
	module = load_ptx(ptx);
	CU(cuModuleGetFunction(&spin, module, "spin"));
	CU(cuModuleGetFunction(&add, module, "add"));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc(&buffer, WORDS * 4));
	CU(cuMemsetD8(buffer, 0, WORDS * 4));
	submit();
	CU(cuStreamSynchronize(stream));
}

static int calibrate(void)
{
	double start = now_s(), until = start + 1;
	int n = 0;

	for (; n < SAMPLES || now_s() < until; n++) {
		submit();
		if (n % 16 == 15)
			CU(cuStreamSynchronize(stream));
	}
	CU(cuStreamSynchronize(stream));
	printf("{\"ms\": %.6f}\n", (now_s() - start) * 1e3 / n);
	return 0;
}

static void work(double seconds, unsigned long queued, CUevent *done)
{
	std::map<long, unsigned long> by_second;
	const char *between = "";
	unsigned long submitted = 0, finished = 0;
	double from = wall_s();

	while (wall_s() < from + seconds) {
		if (submitted - finished == queued) {
			CU(cuEventSynchronize(done[finished++ % queued]));
			by_second[(long)wall_s()]++;
		}
		submit();
		CU(cuEventRecord(done[submitted++ % queued], stream));
	}
	CU(cuStreamSynchronize(stream));
	printf("{\"interposed\": %s, \"from\": %.3f, \"to\": %.3f, \"by_second\": {", interposed(),
	       from, wall_s());
	for (auto &second : by_second) {
		printf("%s\"%ld\": %lu", between, second.first, second.second);
		between = ", ";
	}
	printf("}}\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static CUevent done[MOST_QUEUED];
	unsigned long queued;
	char line[64];

	if (argc < 5)
		DIE("usage: shares KERNELS.ptx spin|add AMOUNT QUEUED [0]");
	spins = !strcmp(argv[2], "spin");
	amount = strtoull(argv[3], NULL, 10);
	queued = strtoul(argv[4], NULL, 10);
	if (queued < 1 || queued > MOST_QUEUED)
		DIE("QUEUED is from 1 to %d", MOST_QUEUED);
	prepare(argv[1]);
	if (argc > 5)
		return calibrate();
	for (unsigned long i = 0; i < queued; i++)
		CU(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		work(atof(line), queued, done);
	return 0;
}
