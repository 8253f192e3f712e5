// shares.cu: a job that always wants the GPU, or serves requests, and how much it gets done.
//
// shares KERNELS.ptx KERNEL AMOUNT QUEUED [SAMPLES]: one kernel after the other, with QUEUED
// submitted ahead. KERNEL: spin, for AMOUNT ns each, or add, AMOUNT passes over its memory each,
// which is 4 MiB, or with add:MIB so much. It prints `ready`, and a line of JSON for each line of
// its input:
//   SECONDS        it works for so long: the kernels that finished in every second of the clock,
//                  the pauses of 100 ms and more between two, and how many words are wrong after
//   SECONDS EVERY  a request each EVERY ms on average, open loop, at random from half to one and a
//                  half of that: how long they took, from when each was due
//   leave          one kernel is submitted, and not waited for: at the end of its input the program
//                  ends while that still runs
// So what it does alone and what it does beside others is measured in the same process, with the
// same memory. With SAMPLES it finds out how many ms a kernel takes when it is alone, by so
// many of them, and ends; 0: by 200, and for a second at least.
#include "driver.cuh"

#include <algorithm>
#include <map>
#include <random>
#include <unistd.h>
#include <vector>

#define MOST_QUEUED 1000 // a launch blocks once 1024 wait on a stream
#define SAMPLES 200      // of a kernel, and for a second at least, unless told
#define PAUSE_S 0.1      // between two kernels: somebody else had the GPU

static CUfunction spin, add;
static CUdeviceptr buffer;
static CUstream stream;
static bool spins;
static unsigned long long amount, words = UINT64_C(1) << 20;
static unsigned int added; // to each word, modulo 2^32

static void submit(void)
{
	unsigned int value = 1, rounds = (unsigned int)amount;
	void *of_spin[] = {&amount}, *of_add[] = {&buffer, &words, &value, &rounds};

	if (spins)
		CU(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, of_spin, NULL));
	else
		CU(cuLaunchKernel(add, 1024, 1, 1, 256, 1, 1, 0, stream, of_add, NULL));
	added += rounds;
}

static size_t wrong_words(void)
{
	std::vector<unsigned int> found(words);

	if (spins)
		return 0;
	CU(cuMemcpyDtoH(found.data(), buffer, words * 4));
	return words - (size_t)std::count(found.begin(), found.end(), added);
}

static void prepare(const char *ptx)
{
	CUmodule module;

	open_device();
	module = load_ptx(ptx);
	CU(cuModuleGetFunction(&spin, module, "spin"));
	CU(cuModuleGetFunction(&add, module, "add"));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc(&buffer, words * 4));
	CU(cuMemsetD8(buffer, 0, words * 4));
	CU(cuCtxSynchronize()); // the stream does not wait for it
	submit();
	CU(cuStreamSynchronize(stream));
}

static int calibrate(int samples)
{
	double start = now_s(), until = samples ? start : start + 1;
	int n = 0;

	for (; n < (samples ? samples : SAMPLES) || now_s() < until; n++) {
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
	std::vector<double> pauses;
	const char *between = "";
	unsigned long submitted = 0, finished = 0;
	double from = wall_s(), last = now_s();

	while (wall_s() < from + seconds) {
		if (submitted - finished == queued) {
			CU(cuEventSynchronize(done[finished++ % queued]));
			by_second[(long)wall_s()]++;
			if (now_s() - last >= PAUSE_S)
				pauses.push_back(now_s() - last);
			last = now_s();
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
	printf("}, \"pauses_ms\": [");
	for (size_t i = 0; i < pauses.size(); i++)
		printf("%s%.2f", i ? ", " : "", pauses[i] * 1e3);
	printf("], \"wrong\": %zu}\n", wrong_words());
}

static void serve(double seconds, double every_s)
{
	std::mt19937 random(7);
	std::uniform_real_distribution<double> part(0.5, 1.5);
	std::vector<double> took;
	double due = now_s(), until = due + seconds;

	while ((due += every_s * part(random)) < until) {
		while (now_s() < due)
			sleep_s(std::max(0.0, due - now_s() - 1e-4));
		submit();
		CU(cuStreamSynchronize(stream));
		took.push_back((now_s() - due) * 1e3);
	}
	if (took.empty())
		DIE("no request in %g s", seconds);
	std::sort(took.begin(), took.end());
	printf("{\"interposed\": %s, \"requests\": %zu, \"p50_ms\": %.3f, \"p99_ms\": %.3f, "
	       "\"max_ms\": %.3f, \"wrong\": %zu}\n",
	       interposed(), took.size(), took[took.size() / 2], took[took.size() * 99 / 100],
	       took.back(), wrong_words());
}

static void leave(void)
{
	submit();
	printf("{\"pid\": %d}\n", (int)getpid());
}

static void obey(const char *line, unsigned long queued, CUevent *done)
{
	double seconds, every_ms;
	int n = sscanf(line, "%lf %lf", &seconds, &every_ms);

	if (n == 2)
		serve(seconds, every_ms / 1e3);
	else if (n == 1)
		work(seconds, queued, done);
	else if (!strcmp(line, "leave\n"))
		leave();
	else
		DIE("unknown: %s", line);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static CUevent done[MOST_QUEUED];
	unsigned long queued;
	char line[64];

	if (argc < 5)
		DIE("usage: shares KERNELS.ptx spin|add[:MIB] AMOUNT QUEUED [SAMPLES]");
	spins = !strcmp(argv[2], "spin");
	if (strchr(argv[2], ':'))
		words = strtoull(strchr(argv[2], ':') + 1, NULL, 10) << 18;
	amount = strtoull(argv[3], NULL, 10);
	queued = strtoul(argv[4], NULL, 10);
	if (queued < 1 || queued > MOST_QUEUED)
		DIE("QUEUED is from 1 to %d", MOST_QUEUED);
	prepare(argv[1]);
	if (argc > 5)
		return calibrate(atoi(argv[5]));
	for (unsigned long i = 0; i < queued; i++)
		CU(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		obey(line, queued, done);
	return 0;
}
