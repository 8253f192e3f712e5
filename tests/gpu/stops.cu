// stops.cu: programs that are stopped again and again, and whose result says whether that was seen.
//
// stops KERNELS.ptx KIND MIB ROUNDS STEPS [ready]: STEPS steps, each with kernels of ROUNDS passes
// over MIB of memory. KIND:
//   plain     kernels and copies, some of them to pageable memory, on two streams
//   managed   kernels on managed memory, of which a part is on the host before each of them
//   graph     a graph of kernels and a copy
//   host      a host function between two kernels says what the second one computes
// Prints a line of JSON with a digest of all that it has computed: always the same for one set of
// arguments.
#include "driver.cuh"
#include "stops.cuh"

#include <vector>

#define BLOCKS 1024
#define THREADS 256

static CUdeviceptr memory, other;
static CUfunction add_kernel, fill_kernel;
static CUstream stream, second;
static std::vector<unsigned int> found;

static void add(CUdeviceptr at, unsigned int value, unsigned int times, CUstream on)
{
	void *parameters[] = {&at, &words, &value, &times};

	CU(cuLaunchKernel(add_kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, on, parameters, NULL));
}

static void fill(CUdeviceptr at, unsigned int value)
{
	void *parameters[] = {&at, &words, &value};

	CU(cuLaunchKernel(fill_kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL));
}

static void take(void)
{
	CU(cuMemAlloc(&memory, words * 4));
	CU(cuMemAlloc(&other, words * 4));
	fill(memory, 3);
	fill(other, 5);
	CU(cuStreamSynchronize(stream));
}

// -- kinds ----------------------------------------------------------------------------------------

static void plain_step(unsigned int step)
{
	size_t at = step % 16 * (words / 16), n = words / 16;

	add(memory, step, rounds, stream);
	add(other, step * 3, rounds, second);
	CU(cuMemcpyDtoDAsync(memory + at * 4, memory, n * 4, stream));
	if (step % 4)
		return;
	CU(cuStreamSynchronize(second));
	CU(cuMemcpyDtoH(found.data(), other + at * 4, n * 4));
	for (size_t i = 0; i < n; i++)
		found[i] ^= step;
	// Not cuMemcpyHtoD, which may return before the device has the bytes: only its own stream
	// waits for them then.
	CU(cuMemcpyHtoDAsync(other + at * 4, found.data(), n * 4, second));
}

static void take_managed(void)
{
	CU(cuMemAllocManaged(&memory, words * 4, CU_MEM_ATTACH_GLOBAL));
	CU(cuMemAllocManaged(&other, words * 4, CU_MEM_ATTACH_GLOBAL));
	fill(memory, 3);
	fill(other, 5);
	CU(cuStreamSynchronize(stream));
}

static void managed_step(unsigned int step)
{
	CUmemLocation host = {};
	size_t at = step % 4 * (words / 4), n = words / 4;

	host.type = CU_MEM_LOCATION_TYPE_HOST;
	CU(cuMemPrefetchAsync(memory + at * 4, n * 4, host, 0, stream));
	add(memory, step, rounds, stream); // faults it in
	add(other, step, rounds, second);
	if (step % 4 == 0)
		CU(cuStreamSynchronize(stream));
}

static CUgraphExec graph;

static void take_graph(void)
{
	CUgraph made;

	take();
	CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	add(memory, 1, rounds, stream);
	CU(cuMemcpyDtoDAsync(other, memory, words * 2, stream));
	add(other, 7, rounds, stream);
	CU(cuStreamEndCapture(stream, &made));
	CU(cuGraphInstantiate(&graph, made, 0));
	CU(cuGraphDestroy(made));
}

static void graph_step(unsigned int step)
{
	CU(cuGraphLaunch(graph, stream));
	if (step % 8 == 0)
		CU(cuStreamSynchronize(stream));
}

static unsigned int *pinned; // the number that goes to the device

static void take_host(void)
{
	void *host;

	take();
	CU(cuMemHostAlloc(&host, 4096, 0));
	pinned = (unsigned int *)host;
	*pinned = 1;
}

static void CUDA_CB next_number(void *unused)
{
	(void)unused;
	*pinned = *pinned * 1664525u + 1013904223u;
}

static void host_step(unsigned int step)
{
	add(memory, step, rounds, stream);
	CU(cuLaunchHostFunc(stream, next_number, NULL));
	CU(cuMemcpyHtoDAsync(memory + step % words * 4, pinned, 4, stream));
	add(memory, step, 1, stream);
	if (step % 8 == 0)
		CU(cuStreamSynchronize(stream));
}

static const struct kind kinds[] = {
    {"plain", take, plain_step},
    {"managed", take_managed, managed_step},
    {"graph", take_graph, graph_step},
    {"host", take_host, host_step},
};

static void digest_of(CUdeviceptr at)
{
	CU(cuMemcpyDtoH(found.data(), at, words * 4));
	mix(found.data(), words * 4);
}

static void finish(void)
{
	CU(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	const struct kind *kind = begin(argc, argv, kinds, sizeof(kinds) / sizeof(kinds[0]));
	CUmodule module;
	double seconds;

	found.resize(words);
	open_device();
	module = load_ptx(argv[1]);
	CU(cuModuleGetFunction(&add_kernel, module, "add"));
	CU(cuModuleGetFunction(&fill_kernel, module, "fill"));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	seconds = work(kind, argc, argv, finish);
	digest_of(memory);
	digest_of(other);
	report(seconds);
	return 0;
}
