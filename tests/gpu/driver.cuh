// driver.cuh: for programs that use the driver alone, with the kernels of a PTX file.
#pragma once

#include "common.cuh"

#include <cuda.h>

#define CU(call)                                                                                   \
	do {                                                                                       \
		CUresult cu_result = (call);                                                       \
		const char *cu_text = NULL;                                                        \
		if (cu_result) {                                                                   \
			cuGetErrorName(cu_result, &cu_text);                                       \
			DIE("%s: %s (%d)", #call, cu_text ? cu_text : "?", (int)cu_result);        \
		}                                                                                  \
	} while (0)

// The first device's primary context, current.
static inline void open_device(void)
{
	CUcontext context;
	CUdevice device;

	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
}

static inline CUmodule load_ptx(const char *path)
{
	static thread_local char text[1 << 16];
	FILE *file = fopen(path, "r");
	CUmodule module;
	size_t n;

	if (!file)
		DIE("cannot read %s", path);
	n = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[n] = 0;
	CU(cuModuleLoadData(&module, text));
	return module;
}
