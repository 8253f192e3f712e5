// loads.cu: threads that call the driver while long kernels of the same process run.
//
// loads KERNELS.ptx MIB ROUNDS SECONDS CALLS [ready]: one kernel after the other, each of ROUNDS
// passes over MIB of memory, on a stream of its own. Meanwhile a thread each loads modules, takes
// and frees device memory, takes and frees host memory, and copies from the device into pageable
// memory and compares. Prints a line of JSON: how often each was done, and how many words were
// wrong.
#include "driver.cuh"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#define COPIED (UINT64_C(1) << 20) // words
#define SOME_BYTES (UINT64_C(1) << 20)
#define BLOCKS 1024
#define THREADS 256

static const char *ptx;
static CUcontext context;
static std::atomic<bool> ends;
static std::atomic<size_t> wrong;
static CUdeviceptr copied;

static void load(void)
{
	CU(cuModuleUnload(load_ptx(ptx)));
}

static void free_device(void)
{
	CUdeviceptr memory;

	CU(cuMemAlloc(&memory, SOME_BYTES));
	CU(cuMemFree(memory));
}

static void take_host(void)
{
	void *memory;

	CU(cuMemHostAlloc(&memory, SOME_BYTES, 0));
	memset(memory, 1, SOME_BYTES);
	CU(cuMemFreeHost(memory));
}

static void copy(void)
{
	std::vector<unsigned int> found(COPIED);

	CU(cuMemcpyDtoH(found.data(), copied, COPIED * 4));
	wrong += COPIED - (size_t)std::count(found.begin(), found.end(), 7u);
}

struct caller {
	const char *name;
	void (*call)(void);
	unsigned long done;
	double longest;
};

static struct caller callers[] = {
    {"load", load, 0, 0},
    {"free", free_device, 0, 0},
    {"host", take_host, 0, 0},
    {"copy", copy, 0, 0},
};

static void call_often(struct caller *caller)
{
	CU(cuCtxSetCurrent(context));
	while (!ends) {
		double start = now_s();

		caller->call();
		caller->longest = std::max(caller->longest, now_s() - start);
		caller->done++;
		sleep_s(0.001);
	}
}

static unsigned int run_kernels(unsigned long long words, unsigned int rounds, double seconds)
{
	unsigned int value = 1, kernels = 0;
	std::vector<unsigned int> found(words);
	CUdeviceptr memory;
	CUfunction add;
	CUstream stream;
	void *parameters[] = {&memory, &words, &value, &rounds};

	CU(cuModuleGetFunction(&add, load_ptx(ptx), "add"));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc(&memory, words * 4));
	CU(cuMemsetD32(memory, 0, words));
	CU(cuCtxSynchronize());
	for (double until = now_s() + seconds; now_s() < until; kernels++) {
		CU(cuLaunchKernel(add, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL));
		CU(cuStreamSynchronize(stream));
	}
	CU(cuMemcpyDtoH(found.data(), memory, words * 4));
	wrong += words - (size_t)std::count(found.begin(), found.end(), kernels * rounds);
	return kernels;
}

int main(int argc, char **argv)
{
	std::vector<std::thread> threads;
	unsigned int kernels;

	if (argc < 6)
		DIE("usage: loads KERNELS.ptx MIB ROUNDS SECONDS CALLS [ready]");
	ptx = argv[1];
	open_device();
	CU(cuCtxGetCurrent(&context));
	CU(cuMemAlloc(&copied, COPIED * 4));
	CU(cuMemsetD32(copied, 7, COPIED));
	CU(cuCtxSynchronize());
	wait_for_go(argc > 6 ? argv[6] : NULL);
	for (struct caller &caller : callers)
		if (strstr(argv[5], caller.name))
			threads.emplace_back(call_often, &caller);
	kernels = run_kernels(strtoull(argv[2], NULL, 10) << 18, (unsigned int)atoi(argv[3]),
	                      atof(argv[4]));
	ends = true;
	for (std::thread &thread : threads)
		thread.join();
	printf("{\"interposed\": %s, \"kernels\": %u, \"wrong\": %zu", interposed(), kernels,
	       wrong.load());
	for (struct caller &caller : callers)
		printf(", \"%s\": {\"done\": %lu, \"longest_s\": %.3f}", caller.name, caller.done,
		       caller.longest);
	printf("}\n");
	return 0;
}
