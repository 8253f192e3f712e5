/* driver.h: the driver's functions, found when they are first needed, so that nothing is linked. */
#ifndef CHAIN_DRIVER_H
#define CHAIN_DRIVER_H

#include <cuda.h>
#include <stdbool.h>

#define CHAIN_CUDA(F)                                                                              \
	F(cuInit, (unsigned int flags), cuInit)                                                    \
	F(cuDeviceGet, (CUdevice * out, int number), cuDeviceGet)                                  \
	F(cuDevicePrimaryCtxRetain, (CUcontext * out, CUdevice device), cuDevicePrimaryCtxRetain)  \
	F(cuDeviceTotalMem, (size_t * out, CUdevice device), cuDeviceTotalMem_v2)                  \
	F(cuCtxSetCurrent, (CUcontext context), cuCtxSetCurrent)                                   \
	F(cuCtxGetDevice, (CUdevice * out), cuCtxGetDevice)                                        \
	F(cuMemAlloc, (CUdeviceptr * out, size_t size), cuMemAlloc_v2)                             \
	F(cuMemFree, (CUdeviceptr pointer), cuMemFree_v2)                                          \
	F(cuIpcGetMemHandle, (CUipcMemHandle * out, CUdeviceptr pointer), cuIpcGetMemHandle)       \
	F(cuIpcOpenMemHandle, (CUdeviceptr * out, CUipcMemHandle handle, unsigned int flags),      \
	  cuIpcOpenMemHandle_v2)                                                                   \
	F(cuIpcCloseMemHandle, (CUdeviceptr pointer), cuIpcCloseMemHandle)                         \
	F(cuStreamSynchronize, (CUstream stream), cuStreamSynchronize)                             \
	F(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data), cuLaunchHostFunc)

#undef cuDeviceTotalMem
#undef cuMemAlloc
#undef cuMemFree
#undef cuIpcOpenMemHandle

struct chain_cuda {
#define MEMBER(name, parameters, symbol) CUresult(*name) parameters;
	CHAIN_CUDA(MEMBER)
#undef MEMBER
};

/* Returns NULL if there is no driver. Any thread may call it. */
const struct chain_cuda *chain_cuda(void);

#endif
