// duty.cu: a job that keeps the GPU busy and leaves it alone, by turns.
//
// duty KERNELS.ptx BUSY_MS IDLE_MS SECONDS ROUNDS [ready]: SECONDS / (BUSY + IDLE)
// periods of ten kernels and a pause on the host. The kernels do a fixed amount
// of work, ROUNDS passes over the buffer, so sharing the GPU makes them longer.
// ROUNDS 0: only find how many make a busy phase BUSY_MS long. Prints a line of JSON.
#include "driver.cuh"

#define KERNELS 10
#define WORDS (UINT64_C(16) << 20)
#define SEED 17u
#define VALUE 3u
#define CHECKED 4096

static CUfunction fill, add;
static CUdeviceptr buffer;
static unsigned int added; // to each word, modulo 2^32

static void submit_add(unsigned int rounds)
{
	unsigned long long words = WORDS;
	unsigned int value = VALUE;
	void *params[] = {&buffer, &words, &value, &rounds};

	CU(cuLaunchKernel(add, 1024, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
	added += VALUE * rounds;
}

static void prepare(const char *ptx)
{
	CUmodule module;
	unsigned long long words = WORDS;
	unsigned int seed = SEED;
	void *params[] = {&buffer, &words, &seed};

	open_device();
	module = load_ptx(ptx);
	CU(cuModuleGetFunction(&fill, module, "fill"));
	CU(cuModuleGetFunction(&add, module, "add"));
	CU(cuMemAlloc(&buffer, WORDS * 4));
	CU(cuLaunchKernel(fill, 1024, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
	CU(cuCtxSynchronize());
}

static double busy_s(unsigned int rounds)
{
	double start = now_s();

	for (int i = 0; i < KERNELS; i++)
		submit_add(rounds);
	CU(cuCtxSynchronize());
	return now_s() - start;
}

static int calibrate(double wanted_s)
{
	const unsigned int rounds = 16;
	double best = 1e9;

	for (double until = now_s() + 0.5; now_s() < until;) {
		double took = busy_s(rounds);

		best = took < best ? took : best;
	}
	wanted_s = wanted_s / best * rounds;
	printf("{\"name\": \"duty\", \"rounds\": %d}\n", wanted_s > 1 ? (int)(wanted_s + 0.5) : 1);
	return 0;
}

static bool right(void)
{
	static unsigned int words[CHECKED];

	CU(cuMemcpyDtoH(words, buffer + (WORDS - CHECKED) * 4, sizeof(words)));
	for (unsigned int i = 0; i < CHECKED; i++) {
		unsigned int at = (unsigned int)(WORDS - CHECKED) + i;

		if (words[i] != SEED + at * 2654435761u + added)
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	double busy, idle, seconds, busiest = 0, total = 0, from, to;
	int rounds, periods;
	bool good;

	if (argc < 6)
		DIE("usage: duty KERNELS.ptx BUSY_MS IDLE_MS SECONDS ROUNDS [ready]");
	busy = atof(argv[2]) / 1e3;
	idle = atof(argv[3]) / 1e3;
	seconds = atof(argv[4]);
	rounds = atoi(argv[5]);
	prepare(argv[1]);
	if (rounds <= 0)
		return calibrate(busy);
	busy_s((unsigned int)rounds);
	wait_for_go(argc > 6 ? argv[6] : NULL);
	periods = (int)(seconds / (busy + idle) + 0.5);
	from = wall_s();
	for (int i = 0; i < periods; i++) {
		double took = busy_s((unsigned int)rounds);

		total += took;
		busiest = took > busiest ? took : busiest;
		sleep_s(idle);
	}
	to = wall_s();
	good = right();
	printf("{\"name\": \"duty\", \"interposed\": %s, \"seconds\": %.3f, \"periods\": %d, "
	       "\"from\": %.3f, \"to\": %.3f, \"busy_ms\": %.2f, \"busiest_ms\": %.2f, "
	       "\"ok\": %s}\n",
	       interposed(), to - from, periods, from, to, total / periods * 1e3, busiest * 1e3,
	       good ? "true" : "false");
	return good ? 0 : 1;
}
