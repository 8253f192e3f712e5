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
	F(cuCtxGetCurrent, (CUcontext * out), cuCtxGetCurrent)                                     \
	F(cuCtxGetDevice, (CUdevice * out), cuCtxGetDevice)                                        \
	F(cuMemAlloc, (CUdeviceptr * out, size_t size), cuMemAlloc_v2)                             \
	F(cuMemFree, (CUdeviceptr pointer), cuMemFree_v2)                                          \
	F(cuIpcGetMemHandle, (CUipcMemHandle * out, CUdeviceptr pointer), cuIpcGetMemHandle)       \
	F(cuIpcOpenMemHandle, (CUdeviceptr * out, CUipcMemHandle handle, unsigned int flags),      \
	  cuIpcOpenMemHandle_v2)                                                                   \
	F(cuIpcCloseMemHandle, (CUdeviceptr pointer), cuIpcCloseMemHandle)                         \
	F(cuStreamQuery, (CUstream stream), cuStreamQuery)                                         \
	F(cuStreamSynchronize, (CUstream stream), cuStreamSynchronize)                             \
	F(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data), cuLaunchHostFunc)

/* For parts of the multiprocessors (parts.h). A driver may lack the last ones. */
#define CHAIN_PARTS(F)                                                                             \
	F(cuCtxPopCurrent, (CUcontext * out), cuCtxPopCurrent_v2)                                  \
	F(cuCtxDestroy, (CUcontext context), cuCtxDestroy_v2)                                      \
	F(cuDeviceGetAttribute, (int *out, CUdevice_attribute attribute, CUdevice device),         \
	  cuDeviceGetAttribute)                                                                    \
	F(cuStreamCreate, (CUstream * out, unsigned int flags), cuStreamCreate)                    \
	F(cuStreamDestroy, (CUstream stream), cuStreamDestroy_v2)                                  \
	F(cuCtxCreate_v3,                                                                          \
	  (CUcontext * out, CUexecAffinityParam * parameters, int n, unsigned int flags,           \
	   CUdevice device),                                                                       \
	  cuCtxCreate_v3)                                                                          \
	F(cuDeviceGetDevResource, (CUdevice device, CUdevResource * out, CUdevResourceType type),  \
	  cuDeviceGetDevResource)                                                                  \
	F(cuDevSmResourceSplitByCount,                                                             \
	  (CUdevResource * out, unsigned int *n, const CUdevResource *in, CUdevResource *rest,     \
	   unsigned int flags, unsigned int least),                                                \
	  cuDevSmResourceSplitByCount)                                                             \
	F(cuDevResourceGenerateDesc,                                                               \
	  (CUdevResourceDesc * out, CUdevResource * in, unsigned int n),                           \
	  cuDevResourceGenerateDesc)                                                               \
	F(cuGreenCtxCreate,                                                                        \
	  (CUgreenCtx * out, CUdevResourceDesc desc, CUdevice device, unsigned int flags),         \
	  cuGreenCtxCreate)                                                                        \
	F(cuGreenCtxDestroy, (CUgreenCtx green), cuGreenCtxDestroy)                                \
	F(cuCtxFromGreenCtx, (CUcontext * out, CUgreenCtx green), cuCtxFromGreenCtx)               \
	F(cuGreenCtxStreamCreate,                                                                  \
	  (CUstream * out, CUgreenCtx green, unsigned int flags, int priority),                    \
	  cuGreenCtxStreamCreate)

#undef cuDeviceTotalMem
#undef cuMemAlloc
#undef cuMemFree
#undef cuIpcOpenMemHandle
#undef cuCtxPopCurrent
#undef cuCtxDestroy
#undef cuStreamDestroy

struct chain_cuda {
#define MEMBER(name, parameters, symbol) CUresult(*name) parameters;
	CHAIN_CUDA(MEMBER)
	CHAIN_PARTS(MEMBER) /* NULL: the driver lacks it */
#undef MEMBER
};

/* Returns NULL if there is no driver. Any thread may call it. */
const struct chain_cuda *chain_cuda(void);
/* Whether the current context has had an error that ends it. It waits for nothing. */
bool chain_context_is_lost(const struct chain_cuda *cuda);

#endif
