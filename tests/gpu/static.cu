// static.cu: a program with the CUDA runtime linked in, on four threads.
//
// static SECONDS [ready]: every thread takes memory by each of the runtime's
// ways, computes by launches, by a graph and by driver functions that it asks
// the runtime for, copies back and compares with what the CPU computes. Then all
// launch small kernels for SECONDS. Built twice: with the legacy default stream,
// and with one for every thread (ptds). Prints a line of JSON.
#include "runtime.cuh"

#include <atomic>
#include <cuda.h>
#include <thread>
#include <vector>

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define NAME "ptds"
#define PER_THREAD true
#else
#define NAME "static"
#define PER_THREAD false
#endif

#define THREADS 4
#define WORDS (1u << 20)
#define BYTES (WORDS * sizeof(unsigned int))
#define BLOCKS (WORDS / 256)
#define REPLAYS 10
#define LAUNCHES 256
#define SPIN_NS 400000000ull

typedef unsigned int word;

__host__ __device__ static word first_word(word seed, word i)
{
	return seed + i * 2654435761u;
}

__host__ __device__ static word mixed(word to, word from)
{
	return to * 1664525u + from + 1013904223u;
}

__global__ void fill(word *out, word seed)
{
	word i = blockIdx.x * blockDim.x + threadIdx.x;

	out[i] = first_word(seed, i);
}

__global__ void mix(word *to, const word *from)
{
	word i = blockIdx.x * blockDim.x + threadIdx.x;

	to[i] = mixed(to[i], from[i]);
}

__global__ void spin(unsigned long long ns)
{
	unsigned long long start = device_ns();

	while (device_ns() - start < ns)
		;
}

__global__ void tick(unsigned long long *ticks)
{
	atomicAdd(ticks, 1ull);
}

// A driver function by the name and the version that its type below has.
static void *driver_function(const char *name)
{
	cudaDriverEntryPointQueryResult found;
	void *function = NULL;

	RT(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
	if (found != cudaDriverEntryPointSuccess || !function)
		DIE("no %s (%d)", name, (int)found);
	return function;
}

// to = mixed(value, from), by the driver alone.
static void mix_by_driver(word *to, word *from, word value, cudaStream_t stream)
{
	typedef CUresult memset_function(CUdeviceptr, unsigned int, size_t, CUstream);
	typedef CUresult launch_function(CUfunction, unsigned int, unsigned int, unsigned int,
	                                 unsigned int, unsigned int, unsigned int, unsigned int,
	                                 CUstream, void **, void **);
	memset_function *set = (memset_function *)driver_function("cuMemsetD32Async");
	launch_function *launch = (launch_function *)driver_function("cuLaunchKernel");
	void *params[] = {&to, &from};
	cudaFunction_t function;

	RT(cudaGetFuncBySymbol(&function, (const void *)mix));
	if (set((CUdeviceptr)to, value, WORDS, stream) ||
	    launch((CUfunction)function, BLOCKS, 1, 1, 256, 1, 1, 0, stream, params, NULL))
		DIE("a driver function failed");
}

// to = from, mixed twice, so often.
static void mix_by_graph(word *to, const word *from, cudaStream_t stream, int times)
{
	cudaGraphExec_t ready;
	cudaGraph_t graph;

	// Others allocate meanwhile, so the capture is this thread's alone.
	RT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	RT(cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDeviceToDevice, stream));
	mix<<<BLOCKS, 256, 0, stream>>>(to, from);
	mix<<<BLOCKS, 256, 0, stream>>>(to, from);
	RT(cudaStreamEndCapture(stream, &graph));
	RT(cudaGraphInstantiateWithFlags(&ready, graph, 0));
	for (int i = 0; i < times; i++)
		RT(cudaGraphLaunch(ready, stream));
	RT(cudaStreamSynchronize(stream));
	RT(cudaGraphExecDestroy(ready));
	RT(cudaGraphDestroy(graph));
}

// Compare with what start(i) gives after so many times mixing with the first words; add to the
// hash.
template <typename Start>
static void check(const char *what, const word *got, word seed, int times, Start start,
                  unsigned long long *hash)
{
	for (word i = 0; i < WORDS; i++) {
		word wanted = start(i);

		for (int n = 0; n < times; n++)
			wanted = mixed(wanted, first_word(seed, i));
		if (got[i] != wanted)
			DIE("%s, seed %u, word %u: %u instead of %u", what, seed, i, got[i],
			    wanted);
		*hash = (*hash ^ got[i]) * 1099511628211ull;
	}
}

static void compute(word seed, unsigned long long *hash)
{
	word *plain, *ordered, *managed, *host;
	cudaStream_t stream;
	cudaEvent_t filled;

	*hash = 14695981039346656037ull;
	RT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	RT(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming));
	RT(cudaMalloc(&plain, BYTES));
	RT(cudaMallocAsync(&ordered, BYTES, stream));
	RT(cudaMallocManaged(&managed, BYTES));
	RT(cudaMallocHost(&host, BYTES));

	fill<<<BLOCKS, 256>>>(plain, seed); // on the default stream
	RT(cudaGetLastError());
	RT(cudaEventRecord(filled, 0));
	RT(cudaStreamWaitEvent(stream, filled, 0));
	RT(cudaMemsetAsync(ordered, 0, BYTES, stream));
	mix<<<BLOCKS, 256, 0, stream>>>(ordered, plain);
	RT(cudaGetLastError());
	RT(cudaMemcpyAsync(managed, ordered, BYTES, cudaMemcpyDefault, stream));
	RT(cudaStreamSynchronize(stream));
	check("managed", managed, seed, 1, [](word) { return 0u; }, hash);

	mix_by_graph(ordered, plain, stream, REPLAYS);
	RT(cudaMemcpyAsync(host, ordered, BYTES, cudaMemcpyDeviceToHost, stream));
	RT(cudaStreamSynchronize(stream));
	check("graph", host, seed, 2, [=](word i) { return first_word(seed, i); }, hash);

	mix_by_driver(ordered, plain, 5, stream);
	RT(cudaStreamSynchronize(stream));
	RT(cudaMemcpy2D(host, 4096, ordered, 4096, 4096, BYTES / 4096, cudaMemcpyDeviceToHost));
	check("driver", host, seed, 1, [](word) { return 5u; }, hash);

	RT(cudaMemcpy(plain, host, BYTES, cudaMemcpyHostToDevice));
	RT(cudaFreeAsync(ordered, stream));
	RT(cudaStreamSynchronize(stream));
	RT(cudaFree(plain));
	RT(cudaFree(managed));
	RT(cudaFreeHost(host));
	RT(cudaEventDestroy(filled));
	RT(cudaStreamDestroy(stream));
}

// Does the default stream of one thread go on while that of another is busy?
static bool independent_streams(void)
{
	std::atomic<int> phase(0);
	double took = 0;
	unsigned long long *ticks;

	RT(cudaMalloc(&ticks, sizeof(*ticks)));
	spin<<<1, 1>>>(0);
	RT(cudaDeviceSynchronize());
	std::thread other([&] {
		tick<<<1, 1>>>(ticks);
		RT(cudaStreamSynchronize(0));
		phase = 1;
		while (phase < 2)
			std::this_thread::yield();
		double start = now_s();
		tick<<<1, 1>>>(ticks);
		RT(cudaStreamSynchronize(0));
		took = now_s() - start;
	});
	while (phase < 1)
		std::this_thread::yield();
	spin<<<1, 1>>>(SPIN_NS);
	phase = 2;
	other.join();
	RT(cudaDeviceSynchronize());
	RT(cudaFree(ticks));
	return took < SPIN_NS * 0.5e-9;
}

// Launches per second of all threads, each on its default stream.
static double launch_rate(double seconds)
{
	std::atomic<unsigned long long> launched(0);
	std::vector<std::thread> threads;
	unsigned long long *ticks, counted;
	double start, passed;

	RT(cudaMalloc(&ticks, sizeof(*ticks)));
	RT(cudaMemset(ticks, 0, sizeof(*ticks)));
	RT(cudaDeviceSynchronize());
	start = now_s();
	for (int t = 0; t < THREADS; t++)
		threads.emplace_back([&] {
			do {
				for (int i = 0; i < LAUNCHES; i++)
					tick<<<1, 1>>>(ticks);
				RT(cudaStreamSynchronize(0));
				launched += LAUNCHES;
			} while (now_s() - start < seconds);
		});
	for (auto &thread : threads)
		thread.join();
	passed = now_s() - start;
	RT(cudaMemcpy(&counted, ticks, sizeof(counted), cudaMemcpyDeviceToHost));
	if (counted != launched)
		DIE("%llu kernels ran, %llu were launched", counted, (unsigned long long)launched);
	RT(cudaFree(ticks));
	return (double)launched / passed;
}

int main(int argc, char **argv)
{
	unsigned long long hashes[THREADS], digest = 0;
	std::vector<std::thread> threads;
	double start = now_s(), first, seconds, rate;
	size_t free_bytes, total;
	bool independent;

	if (argc < 2)
		DIE("usage: static SECONDS [ready]");
	seconds = atof(argv[1]);
	RT(cudaMemGetInfo(&free_bytes, &total));
	spin<<<1, 1>>>(0);
	RT(cudaDeviceSynchronize());
	first = now_s() - start;
	for (word t = 0; t < THREADS; t++)
		threads.emplace_back(compute, 100 + t, &hashes[t]);
	for (auto &thread : threads)
		thread.join();
	for (auto hash : hashes)
		digest = (digest ^ hash) * 1099511628211ull;
	independent = independent_streams();
	wait_for_go(argc > 2 ? argv[2] : NULL);
	rate = launch_rate(seconds);
	printf("{\"name\": \"%s\", \"interposed\": %s, \"digest\": \"%016llx\", \"steps\": %d, "
	       "\"steps_s\": %.1f, \"ms_first\": %.1f, \"total_bytes\": %zu, "
	       "\"per_thread\": %s, \"independent\": %s}\n",
	       NAME, interposed(), digest, THREADS, rate, first * 1e3, total,
	       PER_THREAD ? "true" : "false", independent ? "true" : "false");
	if (independent != PER_THREAD)
		DIE("default streams are%s independent", independent ? "" : " not");
	return 0;
}
