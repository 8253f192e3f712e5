/* nulldriver.c: a libcuda.so.1 that does nothing, at once, to measure what stands before it. */
#include <cuda.h>
#include <stddef.h>

static char context_there[1]; /* handles are its address */

#define EXPORT __attribute__((visibility("default")))

/* The same code under a name that nobody hooks. */
#define ALSO(name, other) EXPORT extern __typeof__(name) other __attribute__((alias(#name)));

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                               unsigned int bx, unsigned int by, unsigned int bz,
                               unsigned int shared, CUstream stream, void **params, void **extra)
{
	(void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared;
	(void)stream, (void)params, (void)extra;
	return CUDA_SUCCESS;
}
ALSO(cuLaunchKernel, null_launch)

EXPORT CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t n, CUstream stream)
{
	(void)pointer, (void)value, (void)n, (void)stream;
	return CUDA_SUCCESS;
}
ALSO(cuMemsetD8Async, null_memset)

/* What the interposer asks for by itself: all work has always finished. */
EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
	*context = (CUcontext)context_there;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	(void)flags;
	*event = (CUevent)context_there;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
	(void)context, (void)event;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventQuery(CUevent event)
{
	(void)event;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	*mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	return CUDA_SUCCESS;
}
