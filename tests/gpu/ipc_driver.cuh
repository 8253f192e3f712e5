// ipc_driver.cuh: what ipc.cu needs, of the driver alone.
#pragma once

#include "driver.cuh"

#include <stdint.h>

typedef CUdeviceptr address;
typedef CUipcMemHandle memory_handle;
typedef CUipcEventHandle event_handle;
typedef CUevent shared_event;

static CUfunction fill_kernel;

static void open_device(const char *kernels)
{
	open_device();
	CU(cuModuleGetFunction(&fill_kernel, load_ptx(kernels), "fill"));
}

static address allocate_bytes(size_t bytes)
{
	address at;

	CU(cuMemAlloc(&at, bytes));
	return at;
}

static void free_bytes(address at)
{
	CU(cuMemFree(at));
}

static void fill_words(address at, uint64_t n, uint32_t value)
{
	void *parameters[] = {&at, &n, &value};

	CU(cuLaunchKernel(fill_kernel, blocks, 1, 1, threads, 1, 1, 0, 0, parameters, NULL));
}

static void copy_out(void *host, address at, size_t bytes)
{
	CU(cuMemcpyDtoH(host, at, bytes));
}

static void synchronize(void)
{
	CU(cuCtxSynchronize());
}

static void get_memory(memory_handle *out, address at)
{
	CU(cuIpcGetMemHandle(out, at));
}

static int try_open(memory_handle handle)
{
	address at;

	return cuIpcOpenMemHandle(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static address open_memory(memory_handle handle)
{
	address at;

	CU(cuIpcOpenMemHandle(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	return at;
}

static void close_memory(address at)
{
	CU(cuIpcCloseMemHandle(at));
}

static shared_event make_event(event_handle *out)
{
	shared_event event;

	CU(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	CU(cuIpcGetEventHandle(out, event));
	return event;
}

static shared_event open_event(event_handle handle)
{
	shared_event event;

	CU(cuIpcOpenEventHandle(&event, handle));
	return event;
}

static void record(shared_event event)
{
	CU(cuEventRecord(event, 0));
}

static void wait_for(shared_event event)
{
	CU(cuStreamWaitEvent(0, event, 0));
}

static void destroy(shared_event event)
{
	CU(cuEventDestroy(event));
}
