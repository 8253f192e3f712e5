// ipc_runtime.cuh: what ipc.cu needs, of the CUDA runtime.
#pragma once

#include "runtime.cuh"

#include <stdint.h>

typedef void *address;
typedef cudaIpcMemHandle_t memory_handle;
typedef cudaIpcEventHandle_t event_handle;
typedef cudaEvent_t shared_event;

// As the one of tests/emugpu/kernels.ptx, which the driver's program has.
__global__ void fill(uint32_t *words, uint64_t n, uint32_t value)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
	     i += (uint64_t)gridDim.x * blockDim.x)
		words[i] = value + (uint32_t)i * 2654435761u;
}

static void open_device(const char *kernels)
{
	(void)kernels; // the program has its own
	RT(cudaFree(NULL));
}

static address allocate_bytes(size_t bytes)
{
	address at;

	RT(cudaMalloc(&at, bytes));
	return at;
}

static void free_bytes(address at)
{
	RT(cudaFree(at));
}

static void fill_words(address at, uint64_t n, uint32_t value)
{
	fill<<<blocks, threads>>>((uint32_t *)at, n, value);
	RT(cudaGetLastError());
}

static void copy_out(void *host, address at, size_t bytes)
{
	RT(cudaMemcpy(host, at, bytes, cudaMemcpyDeviceToHost));
}

static void synchronize(void)
{
	RT(cudaDeviceSynchronize());
}

static void get_memory(memory_handle *out, address at)
{
	RT(cudaIpcGetMemHandle(out, at));
}

static int try_open(memory_handle handle)
{
	address at;

	return cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess);
}

static address open_memory(memory_handle handle)
{
	address at;

	RT(cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess));
	return at;
}

static void close_memory(address at)
{
	RT(cudaIpcCloseMemHandle(at));
}

static shared_event make_event(event_handle *out)
{
	shared_event event;

	RT(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
	RT(cudaIpcGetEventHandle(out, event));
	return event;
}

static shared_event open_event(event_handle handle)
{
	shared_event event;

	RT(cudaIpcOpenEventHandle(&event, handle));
	return event;
}

static void record(shared_event event)
{
	RT(cudaEventRecord(event));
}

static void wait_for(shared_event event)
{
	RT(cudaStreamWaitEvent(0, event, 0));
}

static void destroy(shared_event event)
{
	RT(cudaEventDestroy(event));
}
