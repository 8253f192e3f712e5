// slices.cu: when this job's kernels ran, by the device's clock.
//
// slices SECONDS FILE [ready]: keeps the GPU's queue full of short kernels, by
// launches and by graphs on two streams. Every 64th launch runs for 2 ms, which
// is longer than the driver's time slices. Each kernel keeps the device's time
// at its start and its end and its multiprocessor; at the end they are written
// to FILE, three 64-bit numbers a kernel. Prints a line of JSON.
#include "runtime.cuh"

#include <vector>

#define RING (1u << 20)
#define SHORT_NS 20000u
#define LONG_NS 2000000u
#define LAUNCHES 64
#define NODES 8

struct slice {
	unsigned long long start, end, multiprocessor;
};

static struct slice *ring;
static unsigned long long *count;

__global__ void run_slice(struct slice *slices, unsigned long long *n, unsigned int ns)
{
	unsigned long long start = device_ns(), index = atomicAdd(n, 1ull);
	unsigned int multiprocessor;

	asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
	while (device_ns() - start < ns)
		;
	slices[index % RING] = {start, device_ns(), multiprocessor};
}

static void submit(cudaStream_t stream, unsigned int ns)
{
	run_slice<<<1, 1, 0, stream>>>(ring, count, ns);
	RT(cudaGetLastError());
}

static cudaGraphExec_t make_graph(cudaStream_t stream)
{
	cudaGraphExec_t ready;
	cudaGraph_t graph;

	RT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < NODES; i++)
		submit(stream, SHORT_NS);
	RT(cudaStreamEndCapture(stream, &graph));
	RT(cudaGraphInstantiateWithFlags(&ready, graph, 0));
	RT(cudaGraphDestroy(graph));
	return ready;
}

static void write_slices(const char *path, unsigned long long n)
{
	std::vector<struct slice> slices(n < RING ? n : RING);
	FILE *file = fopen(path, "wb");

	RT(cudaMemcpy(slices.data(), ring, slices.size() * sizeof(ring[0]),
	              cudaMemcpyDeviceToHost));
	if (!file || fwrite(slices.data(), sizeof(ring[0]), slices.size(), file) != slices.size() ||
	    fclose(file))
		DIE("cannot write %s", path);
}

int main(int argc, char **argv)
{
	unsigned long long n = 0, warm = 0;
	cudaStream_t launches, graphs;
	cudaGraphExec_t graph;
	double from, to, seconds;

	if (argc < 3)
		DIE("usage: slices SECONDS FILE [ready]");
	seconds = atof(argv[1]);
	RT(cudaStreamCreateWithFlags(&launches, cudaStreamNonBlocking));
	RT(cudaStreamCreateWithFlags(&graphs, cudaStreamNonBlocking));
	RT(cudaMalloc(&ring, RING * sizeof(ring[0])));
	RT(cudaMalloc(&count, sizeof(*count)));
	RT(cudaMemset(ring, 0, RING * sizeof(ring[0])));
	RT(cudaMemset(count, 0, sizeof(*count)));
	RT(cudaDeviceSynchronize());
	graph = make_graph(graphs);
	submit(launches, SHORT_NS);
	RT(cudaGraphLaunch(graph, graphs));
	RT(cudaDeviceSynchronize());
	RT(cudaMemcpy(&warm, count, sizeof(warm), cudaMemcpyDeviceToHost));
	if (warm != 1 + NODES)
		DIE("%llu kernels ran instead of %d", warm, 1 + NODES);
	wait_for_go(argc > 3 ? argv[3] : NULL);
	from = wall_s();
	for (double until = now_s() + seconds; now_s() < until;) {
		submit(launches, LONG_NS);
		for (int i = 1; i < LAUNCHES; i++) {
			submit(launches, SHORT_NS);
			if (i % NODES == 0)
				RT(cudaGraphLaunch(graph, graphs));
		}
	}
	RT(cudaDeviceSynchronize());
	to = wall_s();
	RT(cudaMemcpy(&n, count, sizeof(n), cudaMemcpyDeviceToHost));
	write_slices(argv[2], n);
	printf("{\"name\": \"slices\", \"interposed\": %s, \"slices\": %llu, \"wrapped\": %s, "
	       "\"from\": %.3f, \"to\": %.3f, \"steps_s\": %.1f}\n",
	       interposed(), n, n > RING ? "true" : "false", from, to,
	       (double)(n - warm) / (to - from));
	return 0;
}
