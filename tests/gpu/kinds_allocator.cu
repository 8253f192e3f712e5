// kinds_allocator.cu: allocators of one kind of memory each, for PyTorch's memory pools.
//
// Built as a library. plain_, managed_, prefetched_ and advised_ are cudaMalloc and three
// ways to have managed memory; see kinds.cu. A failure is NULL, which PyTorch reports.
#include <cuda_runtime.h>

#include <sys/types.h>

static cudaMemLocation on(int device)
{
	return {cudaMemLocationTypeDevice, device};
}

static void *managed(ssize_t size)
{
	void *memory = nullptr;

	return cudaMallocManaged(&memory, size) ? nullptr : memory;
}

extern "C" {
void *plain_take(ssize_t size, int, cudaStream_t)
{
	void *memory = nullptr;

	return cudaMalloc(&memory, size) ? nullptr : memory;
}

void *managed_take(ssize_t size, int, cudaStream_t)
{
	return managed(size);
}

void *prefetched_take(ssize_t size, int device, cudaStream_t stream)
{
	void *memory = managed(size);

	if (memory)
		cudaMemPrefetchAsync(memory, size, on(device), 0, stream);
	return memory;
}

void *advised_take(ssize_t size, int device, cudaStream_t)
{
	void *memory = managed(size);

	if (memory) {
		cudaMemAdvise(memory, size, cudaMemAdviseSetPreferredLocation, on(device));
		cudaMemAdvise(memory, size, cudaMemAdviseSetAccessedBy, on(device));
	}
	return memory;
}

void give_back(void *memory, ssize_t, int, cudaStream_t)
{
	cudaFree(memory);
}
}
