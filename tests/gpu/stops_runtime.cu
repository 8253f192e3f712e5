// stops_runtime.cu: as stops.cu, of what kernels of the runtime can do.
//
// stops_runtime KERNELS.ptx KIND MIB ROUNDS STEPS [ready]. KIND:
//   conditional   a graph whose body is repeated until a kernel says that it is enough
//   cooperative   kernels whose blocks wait for each other, ROUNDS times each
//   faults        managed memory that the host writes between kernels, which fault it in
// KERNELS.ptx is not used.
#include "runtime.cuh"
#include "stops.cuh"

#include <cooperative_groups.h>
#include <vector>

#define THREADS 256

static unsigned int *memory, *other, *counter;
static cudaStream_t stream;

static __global__ void change(unsigned int *at, u64 n, unsigned int times)
{
	for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n;
	     i += (u64)gridDim.x * blockDim.x) {
		unsigned int word = at[i];

		for (unsigned int k = 0; k < times; k++)
			word = word * 1664525u + 1013904223u;
		at[i] = word;
	}
}

// One word after the other of its neighbour's from the round before.
static __global__ void shift(unsigned int *from, unsigned int *to, u64 n, unsigned int times)
{
	cooperative_groups::grid_group grid = cooperative_groups::this_grid();

	for (unsigned int k = 0; k < times; k++) {
		unsigned int *in = k % 2 ? to : from, *out = k % 2 ? from : to;

		for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n;
		     i += (u64)gridDim.x * blockDim.x)
			out[i] = in[(i + 977) % n] * 3u + k;
		grid.sync();
	}
}

static __global__ void decide(cudaGraphConditionalHandle handle, unsigned int *count,
                              unsigned int most)
{
	cudaGraphSetConditional(handle, ++*count % most != 0);
}

static void take(void)
{
	RT(cudaMalloc(&memory, words * 4));
	RT(cudaMalloc(&other, words * 4));
	RT(cudaMalloc(&counter, 4));
	RT(cudaMemset(memory, 1, words * 4));
	RT(cudaMemset(other, 2, words * 4));
	RT(cudaMemset(counter, 0, 4));
}

// -- kinds ----------------------------------------------------------------------------------------

static cudaGraphExec_t graph;

static void take_conditional(void)
{
	cudaGraphNodeParams loop = {};
	cudaGraphNode_t node;
	cudaGraph_t made, body;

	take();
	RT(cudaGraphCreate(&made, 0));
	loop.type = cudaGraphNodeTypeConditional;
	loop.conditional.type = cudaGraphCondTypeWhile;
	loop.conditional.size = 1;
	RT(cudaGraphConditionalHandleCreate(&loop.conditional.handle, made, 1,
	                                    cudaGraphCondAssignDefault));
#if CUDART_VERSION >= 13000
	RT(cudaGraphAddNode(&node, made, NULL, NULL, 0, &loop));
#else
	RT(cudaGraphAddNode(&node, made, NULL, 0, &loop));
#endif
	body = loop.conditional.phGraph_out[0];
	RT(cudaStreamBeginCaptureToGraph(stream, body, NULL, NULL, 0,
	                                 cudaStreamCaptureModeThreadLocal));
	change<<<1024, THREADS, 0, stream>>>(memory, words, 16);
	decide<<<1, 1, 0, stream>>>(loop.conditional.handle, counter, rounds);
	RT(cudaStreamEndCapture(stream, &body));
	RT(cudaGraphInstantiate(&graph, made, 0));
}

static void conditional_step(unsigned int step)
{
	RT(cudaGraphLaunch(graph, stream));
	if (step % 4 == 0)
		RT(cudaStreamSynchronize(stream));
}

static void cooperative_step(unsigned int step)
{
	void *parameters[] = {&memory, &other, &words, &rounds};
	int multiprocessors, blocks;

	RT(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
	RT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)shift, THREADS, 0));
	RT(cudaLaunchCooperativeKernel((const void *)shift, dim3(multiprocessors * blocks),
	                               dim3(THREADS), parameters, 0, stream));
	if (step % 4 == 0)
		RT(cudaStreamSynchronize(stream));
}

static void take_faults(void)
{
	RT(cudaMallocManaged(&memory, words * 4));
	RT(cudaMallocManaged(&other, words * 4));
	RT(cudaMemset(memory, 1, words * 4));
	RT(cudaMemset(other, 2, words * 4));
	RT(cudaDeviceSynchronize());
}

static void faults_step(unsigned int step)
{
	for (u64 at = step % 64; at < words; at += 1 << 16)
		memory[at] += step;
	for (unsigned int k = 0; k < rounds; k++) {
		change<<<1024, THREADS, 0, stream>>>(memory, words, 16);
		change<<<1024, THREADS, 0, stream>>>(other, words, 16);
	}
	RT(cudaStreamSynchronize(stream));
}

static const struct kind kinds[] = {
    {"conditional", take_conditional, conditional_step},
    {"cooperative", take, cooperative_step},
    {"faults", take_faults, faults_step},
};

static void digest_of(const unsigned int *at)
{
	std::vector<unsigned int> found(words);

	RT(cudaMemcpy(found.data(), at, words * 4, cudaMemcpyDefault));
	mix(found.data(), words * 4);
}

static void finish(void)
{
	RT(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
	const struct kind *kind = begin(argc, argv, kinds, sizeof(kinds) / sizeof(kinds[0]));
	double seconds;

	RT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	seconds = work(kind, argc, argv, finish);
	digest_of(memory);
	digest_of(other);
	report(seconds);
	return 0;
}
