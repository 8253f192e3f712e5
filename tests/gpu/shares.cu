// shares.cu: a job that always wants the GPU, or serves requests, and how much it gets done.
//
// shares KERNELS.ptx KERNEL AMOUNT[xN] QUEUED [SAMPLES]: one step after the other, with QUEUED
// submitted ahead. A step is N kernels, or one. KERNEL: spin, for AMOUNT ns each; add, AMOUNT
// passes over its memory each, which is 4 MiB, or with add:MIB so much; graph, the same as a graph
// of N kernels; copy, instead of kernels AMOUNT copies of that memory to the device and back. It
// prints `ready`, and a line of JSON for each line of its input:
//   SECONDS        it works for so long: the steps that finished in every second of the clock, how
//                  long they took, each from the end of the one before, the pauses of 100 ms and
//                  more between two, and how many words are wrong after
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
#include <numeric>
#include <random>
#include <unistd.h>
#include <vector>

#define MOST_QUEUED 1000 // a launch blocks once 1024 wait on a stream
#define SAMPLES 200      // of a kernel, and for a second at least, unless told
#define PAUSE_S 0.1      // between two kernels: somebody else had the GPU

#define COPIED 7u        // each word that a copy brings

static enum { SPIN, ADD, GRAPH, COPY } kind;
static CUfunction spin, add;
static CUdeviceptr buffer;
static CUgraphExec graph;
static CUstream stream;
static unsigned int *sent, *fetched; // of copies, on the host
static unsigned long long amount, kernels = 1, words = UINT64_C(1) << 20;
static unsigned int added; // to each word, modulo 2^32

static void submit_kernel(void)
{
	unsigned int value = 1, rounds = (unsigned int)amount;
	void *of_spin[] = {&amount}, *of_add[] = {&buffer, &words, &value, &rounds};

	if (kind == SPIN)
		CU(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, of_spin, NULL));
	else
		CU(cuLaunchKernel(add, 1024, 1, 1, 256, 1, 1, 0, stream, of_add, NULL));
}

static void submit_copy(void)
{
	CU(cuMemcpyHtoDAsync(buffer, sent, words * 4, stream));
	CU(cuMemcpyDtoHAsync(fetched, buffer, words * 4, stream));
}

// A step.
static void submit(void)
{
	if (kind == COPY)
		for (unsigned long long i = 0; i < amount; i++)
			submit_copy();
	else if (kind == GRAPH)
		CU(cuGraphLaunch(graph, stream));
	else
		for (unsigned long long i = 0; i < kernels; i++)
			submit_kernel();
	added = kind == COPY ? COPIED : added + (unsigned int)(amount * kernels);
}

static size_t wrong_words(void)
{
	std::vector<unsigned int> found(words);
	size_t wrong = 0;

	if (kind == SPIN)
		return 0;
	CU(cuMemcpyDtoH(found.data(), buffer, words * 4));
	wrong = words - (size_t)std::count(found.begin(), found.end(), added);
	if (kind == COPY)
		wrong += words - (size_t)std::count(fetched, fetched + words, added);
	return wrong;
}

static void make_graph(void)
{
	CUgraph captured;

	CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (unsigned long long i = 0; i < kernels; i++)
		submit_kernel();
	CU(cuStreamEndCapture(stream, &captured));
	CU(cuGraphInstantiateWithFlags(&graph, captured, 0));
	CU(cuGraphDestroy(captured));
}

static void make_host_memory(void)
{
	CU(cuMemAllocHost((void **)&sent, words * 4));
	CU(cuMemAllocHost((void **)&fetched, words * 4));
	std::fill(sent, sent + words, COPIED);
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
	if (kind == GRAPH)
		make_graph();
	if (kind == COPY)
		make_host_memory();
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

// How long steps took, in ms, of which there are some: JSON.
static void print_times(std::vector<double> &took)
{
	double mean = std::accumulate(took.begin(), took.end(), 0.0) / took.size();

	std::sort(took.begin(), took.end());
	printf("\"steps\": %zu, \"mean_ms\": %.3f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, "
	       "\"max_ms\": %.3f, ",
	       took.size(), mean, took[took.size() / 2], took[took.size() * 99 / 100], took.back());
}

static void work(double seconds, unsigned long queued, CUevent *done)
{
	std::map<long, unsigned long> by_second;
	std::vector<double> pauses, took;
	const char *between = "";
	unsigned long submitted = 0, finished = 0;
	double from = wall_s(), last = now_s();

	while (took.empty() || wall_s() < from + seconds) {
		if (submitted - finished == queued) {
			CU(cuEventSynchronize(done[finished++ % queued]));
			by_second[(long)wall_s()]++;
			took.push_back((now_s() - last) * 1e3);
			if (now_s() - last >= PAUSE_S)
				pauses.push_back(now_s() - last);
			last = now_s();
		}
		submit();
		CU(cuEventRecord(done[submitted++ % queued], stream));
	}
	CU(cuStreamSynchronize(stream));
	printf("{\"interposed\": %s, \"from\": %.3f, \"to\": %.3f, ", interposed(), from, wall_s());
	print_times(took);
	printf("\"by_second\": {");
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
	double due = now_s(), until = due + seconds, from = wall_s();

	while ((due += every_s * part(random)) < until) {
		while (now_s() < due)
			sleep_s(std::max(0.0, due - now_s() - 1e-4));
		submit();
		CU(cuStreamSynchronize(stream));
		took.push_back((now_s() - due) * 1e3);
	}
	if (took.empty())
		DIE("no request in %g s", seconds);
	printf("{\"interposed\": %s, \"from\": %.3f, \"to\": %.3f, ", interposed(), from, wall_s());
	print_times(took);
	printf("\"wrong\": %zu}\n", wrong_words());
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

static void choose(const char *kernel, const char *of)
{
	const char *mib = strchr(kernel, ':');

	kind = kernel[0] == 's' ? SPIN : kernel[0] == 'a' ? ADD : kernel[0] == 'g' ? GRAPH : COPY;
	if (mib)
		words = strtoull(mib + 1, NULL, 10) << 18;
	if (sscanf(of, "%llux%llu", &amount, &kernels) < 1 || kernels < 1)
		DIE("no amount: %s", of);
}

int main(int argc, char **argv)
{
	static CUevent done[MOST_QUEUED];
	unsigned long queued;
	char line[64];

	if (argc < 5)
		DIE("usage: shares KERNELS.ptx spin|add|graph|copy[:MIB] AMOUNT[xN] QUEUED [SAMPLES]");
	choose(argv[2], argv[3]);
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
