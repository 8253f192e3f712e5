/* fake_functions.h: the functions of the fake driver. */
#ifndef FAKE_FUNCTIONS_H
#define FAKE_FUNCTIONS_H

#include <cuda.h>

#define FAKE_FUNCTIONS(FUNCTION)                                                                   \
	FUNCTION(cuCtxGetCurrent)                                                                  \
	FUNCTION(cuCtxGetDevice)                                                                   \
	FUNCTION(cuCtxPushCurrent_v2)                                                              \
	FUNCTION(cuCtxPopCurrent_v2)                                                               \
	FUNCTION(cuCtxSynchronize)                                                                 \
	FUNCTION(cuCtxRecordEvent)                                                                 \
	FUNCTION(cuDeviceGetUuid_v2)                                                               \
	FUNCTION(cuDeviceGetAttribute)                                                             \
	FUNCTION(cuDeviceCanAccessPeer)                                                            \
	FUNCTION(cuMemGetInfo_v2)                                                                  \
	FUNCTION(cuThreadExchangeStreamCaptureMode)                                                \
	FUNCTION(cuMemAlloc_v2)                                                                    \
	FUNCTION(cuMemAllocManaged)                                                                \
	FUNCTION(cuMemFree_v2)                                                                     \
	FUNCTION(cuMemFreeAsync)                                                                   \
	FUNCTION(cuMemPrefetchAsync_v2)                                                            \
	FUNCTION(cuMemGetAllocationGranularity)                                                    \
	FUNCTION(cuMemAddressReserve)                                                              \
	FUNCTION(cuMemAddressFree)                                                                 \
	FUNCTION(cuMemCreate)                                                                      \
	FUNCTION(cuMemRelease)                                                                     \
	FUNCTION(cuMemMap)                                                                         \
	FUNCTION(cuMemUnmap)                                                                       \
	FUNCTION(cuMemSetAccess)                                                                   \
	FUNCTION(cuMemExportToShareableHandle)                                                     \
	FUNCTION(cuMemImportFromShareableHandle)                                                   \
	FUNCTION(cuMemcpyDtoHAsync_v2)                                                             \
	FUNCTION(cuMemcpyHtoDAsync_v2)                                                             \
	FUNCTION(cuModuleLoadData)                                                                 \
	FUNCTION(cuModuleGetFunction)                                                              \
	FUNCTION(cuModuleUnload)                                                                   \
	FUNCTION(cuLaunchKernel)                                                                   \
	FUNCTION(cuMemHostAlloc)                                                                   \
	FUNCTION(cuMemHostGetDevicePointer_v2)                                                     \
	FUNCTION(cuMemFreeHost)                                                                    \
	FUNCTION(cuMemHostRegister_v2)                                                             \
	FUNCTION(cuMemHostUnregister)                                                              \
	FUNCTION(cuStreamCreate)                                                                   \
	FUNCTION(cuStreamDestroy_v2)                                                               \
	FUNCTION(cuStreamSynchronize)                                                              \
	FUNCTION(cuStreamQuery)                                                                    \
	FUNCTION(cuEventCreate)                                                                    \
	FUNCTION(cuEventDestroy_v2)                                                                \
	FUNCTION(cuEventRecord)                                                                    \
	FUNCTION(cuEventQuery)                                                                     \
	FUNCTION(cuEventSynchronize)

#define FUNCTION(name) __typeof__(name) fake_##name;
FAKE_FUNCTIONS(FUNCTION)
#undef FUNCTION

#define FAKE(name) CUresult fake_##name

#endif
