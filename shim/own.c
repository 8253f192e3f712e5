/* own.c: the functions that do more than wait: memory, contexts, captures, lookups. */
#include "memory.h"

#include <pthread.h>
#include <stdlib.h>

/* cuda.h maps these names to newer ones; here they mean themselves. */
#undef cuCtxCreate_v2
#undef cuCtxCreate_v3
#undef cuGetProcAddress

#define CALL(name, parameters) ((CUresult(*) parameters)real_hook(HOOK_##name))
#define TRY(expression)                                                                            \
	do {                                                                                       \
		CUresult try_result = (expression);                                                \
		if (try_result)                                                                    \
			return try_result;                                                         \
	} while (0)
#define NEED(name, parameters)                                                                     \
	CUresult(*real) parameters = CALL(name, parameters);                                       \
	if (!real)                                                                                 \
	return CUDA_ERROR_NOT_FOUND

/* -- memory ------------------------------------------------------------------ */

/* The current device and what the job may have on it; 0: a device not leased. */
static CUresult current_limit(CUdevice *device, uint64_t *limit)
{
	const uint8_t *uuid;

	TRY(REAL(cuCtxGetDevice)(device));
	TRY(client_need_welcome());
	uuid = device_uuid(*device);
	*limit = uuid ? client_limit(uuid) : 0;
	return CUDA_SUCCESS;
}

static uint64_t used_by_job(CUdevice device)
{
	const uint8_t *uuid = device_uuid(device);

	return memory_used(device) + (uuid ? client_others(uuid) : 0);
}

static void free_deferred(bool wait);

/* Would so many bytes more be too many? The driver's own error, then. */
static CUresult check_room(size_t size, CUdevice *device)
{
	uint64_t limit;

	TRY(current_limit(device, &limit));
	if (!limit || client_oversub())
		return CUDA_SUCCESS;
	if (size <= limit && used_by_job(*device) <= limit - size)
		return CUDA_SUCCESS;
	free_deferred(true);
	if (size <= limit && used_by_job(*device) <= limit - size)
		return CUDA_SUCCESS;
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult allocate(CUdeviceptr *pointer, size_t size)
{
	CUresult (*managed)(CUdeviceptr *, size_t, unsigned int) =
	    CALL(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned int));
	CUdevice device;

	if (!managed)
		return CUDA_ERROR_NOT_FOUND;
	TRY(check_room(size, &device));
	free_deferred(false);
	TRY(managed(pointer, size, CU_MEM_ATTACH_GLOBAL));
	memory_add(*pointer, size, device, true);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size)
{
	NEED(cuMemAlloc_v2, (CUdeviceptr *, size_t));
	if (!pointer || !size)
		return real(pointer, size); /* the driver's own words for it */
	return allocate(pointer, size);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                   unsigned int element)
{
	const size_t unit = 512; /* what the driver aligns rows to on every card so far */

	NEED(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned int));
	if (!pointer || !pitch || !width || !height ||
	    (element != 4 && element != 8 && element != 16) || width > SIZE_MAX / 2 / height)
		return real(pointer, pitch, width, height, element);
	*pitch = (width + unit - 1) / unit * unit;
	return allocate(pointer, *pitch * height);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t size, unsigned int flags)
{
	CUdevice device;

	NEED(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned int));
	if (!pointer || !size)
		return real(pointer, size, flags);
	TRY(check_room(size, &device));
	TRY(real(pointer, size, flags));
	memory_add(*pointer, size, device, true);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
	CUresult result;

	NEED(cuMemFree_v2, (CUdeviceptr));
	/* First forget it: the address may be given out again at once. */
	memory_remove(pointer);
	result = real(pointer);
	return result;
}

/* Memory that its stream has not got to freeing yet. */
static struct deferred {
	struct deferred *next;
	CUdeviceptr pointer;
	CUevent event;
} *deferred;

static pthread_mutex_t deferred_lock = PTHREAD_MUTEX_INITIALIZER;

static void free_deferred(bool wait)
{
	struct deferred *done = NULL;

	pthread_mutex_lock(&deferred_lock);
	for (struct deferred **at = &deferred; *at;) {
		struct deferred *d = *at;

		if (wait)
			REAL(cuEventSynchronize)(d->event);
		if (wait || REAL(cuEventQuery)(d->event) == CUDA_SUCCESS) {
			*at = d->next;
			d->next = done;
			done = d;
		} else {
			at = &d->next;
		}
	}
	pthread_mutex_unlock(&deferred_lock);
	while (done) {
		struct deferred *d = done;

		done = d->next;
		REAL(cuEventDestroy)(d->event);
		cuMemFree_v2(d->pointer);
		free(d);
	}
}

/* Ordered memory becomes managed too; it exists from now on, and is freed when
 * its stream has got there. Inside a capture it is the driver's. */
static CUresult alloc_ordered(CUdeviceptr *pointer, size_t size, CUstream stream, CUresult *result)
{
	if (stream_captures(stream) || !pointer || !size)
		return CUDA_ERROR_NOT_SUPPORTED;
	*result = allocate(pointer, size);
	return CUDA_SUCCESS;
}

#define ALLOC_ASYNC(name, stream_now)                                                              \
	EXPORT CUresult name(CUdeviceptr *pointer, size_t size, CUstream stream)                   \
	{                                                                                          \
		CUresult result;                                                                   \
		NEED(name, (CUdeviceptr *, size_t, CUstream));                                     \
		if (alloc_ordered(pointer, size, stream_now, &result))                             \
			result = real(pointer, size, stream);                                      \
		return result;                                                                     \
	}

#define ALLOC_POOL(name, stream_now)                                                               \
	EXPORT CUresult name(CUdeviceptr *pointer, size_t size, CUmemoryPool pool,                 \
	                     CUstream stream)                                                      \
	{                                                                                          \
		CUresult result;                                                                   \
		NEED(name, (CUdeviceptr *, size_t, CUmemoryPool, CUstream));                       \
		if (alloc_ordered(pointer, size, stream_now, &result))                             \
			result = real(pointer, size, pool, stream);                                \
		return result;                                                                     \
	}

static CUresult free_ordered(CUdeviceptr pointer, CUstream stream)
{
	struct deferred *d = malloc(sizeof(*d));

	if (!d)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*d = (struct deferred){.pointer = pointer};
	if (REAL(cuEventCreate)(&d->event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC) ||
	    REAL(cuEventRecord)(d->event, stream)) {
		free(d);
		return CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&deferred_lock);
	d->next = deferred;
	deferred = d;
	pthread_mutex_unlock(&deferred_lock);
	return CUDA_SUCCESS;
}

#define FREE_ASYNC(name, stream_now)                                                               \
	EXPORT CUresult name(CUdeviceptr pointer, CUstream stream)                                 \
	{                                                                                          \
		NEED(name, (CUdeviceptr, CUstream));                                               \
		return memory_known(pointer) ? free_ordered(pointer, stream_now)                   \
		                             : real(pointer, stream);                              \
	}

#define PER_THREAD (stream ? stream : CU_STREAM_PER_THREAD)

ALLOC_ASYNC(cuMemAllocAsync, stream)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, PER_THREAD)
ALLOC_POOL(cuMemAllocFromPoolAsync, stream)
ALLOC_POOL(cuMemAllocFromPoolAsync_ptsz, PER_THREAD)
FREE_ASYNC(cuMemFreeAsync, stream)
FREE_ASYNC(cuMemFreeAsync_ptsz, PER_THREAD)

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	uint64_t limit, used;
	CUdevice device;

	NEED(cuMemGetInfo_v2, (size_t *, size_t *));
	TRY(real(free_bytes, total));
	TRY(current_limit(&device, &limit));
	if (limit && free_bytes && total) {
		used = used_by_job(device);
		*total = limit;
		*free_bytes = used < limit ? limit - used : 0;
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	const uint8_t *uuid;
	uint64_t limit;

	NEED(cuDeviceTotalMem_v2, (size_t *, CUdevice));
	TRY(real(bytes, device));
	uuid = device_uuid(device);
	if (!uuid || client_need_welcome())
		return CUDA_SUCCESS;
	limit = client_limit(uuid);
	if (limit)
		*bytes = limit;
	return CUDA_SUCCESS;
}

/* -- contexts ---------------------------------------------------------------- */

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	NEED(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice));
	TRY(real(context, device));
	device_uuid(device);
	context_add(*context, device);
	return CUDA_SUCCESS;
}

/* A release may be the last; then the context is gone until it is retained again. */
static CUresult end_primary(CUresult (*real)(CUdevice), CUdevice device)
{
	CUcontext context = context_of(device);
	unsigned int flags;
	CUresult result;
	int active = 1;

	context_remove_begin(context);
	result = real(device);
	context_remove_end();
	if (context && !REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) && active)
		context_add(context, device);
	return result;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	NEED(cuDevicePrimaryCtxRelease_v2, (CUdevice));
	return end_primary(real, device);
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	NEED(cuDevicePrimaryCtxReset_v2, (CUdevice));
	return end_primary(real, device);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	NEED(cuCtxCreate_v2, (CUcontext *, unsigned int, CUdevice));
	TRY(real(context, flags, device));
	device_uuid(device);
	context_add(*context, device);
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int n, unsigned int flags,
                        CUdevice device);
EXPORT CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int n,
                               unsigned int flags, CUdevice device)
{
	NEED(cuCtxCreate_v3, (CUcontext *, CUexecAffinityParam *, int, unsigned int, CUdevice));
	TRY(real(context, params, n, flags, device));
	device_uuid(device);
	context_add(*context, device);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
                               CUdevice device)
{
	NEED(cuCtxCreate_v4, (CUcontext *, CUctxCreateParams *, unsigned int, CUdevice));
	TRY(real(context, params, flags, device));
	device_uuid(device);
	context_add(*context, device);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
	CUresult result;

	NEED(cuCtxDestroy_v2, (CUcontext));
	context_remove_begin(context);
	result = real(context);
	context_remove_end();
	return result;
}

/* -- captures ---------------------------------------------------------------- */

#define BEGIN_CAPTURE(name)                                                                        \
	EXPORT CUresult name(CUstream stream, CUstreamCaptureMode mode)                            \
	{                                                                                          \
		CUresult result;                                                                   \
		NEED(name, (CUstream, CUstreamCaptureMode));                                       \
		capture_begins();                                                                  \
		result = real(stream, mode);                                                       \
		if (result)                                                                        \
			capture_ended();                                                           \
		return result;                                                                     \
	}

#define BEGIN_CAPTURE_TO_GRAPH(name)                                                               \
	EXPORT CUresult name(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,      \
	                     const CUgraphEdgeData *data, size_t n, CUstreamCaptureMode mode)      \
	{                                                                                          \
		CUresult result;                                                                   \
		NEED(name, (CUstream, CUgraph, const CUgraphNode *, const CUgraphEdgeData *,       \
		            size_t, CUstreamCaptureMode));                                         \
		capture_begins();                                                                  \
		result = real(stream, graph, dependencies, data, n, mode);                         \
		if (result)                                                                        \
			capture_ended();                                                           \
		return result;                                                                     \
	}

/* Also an end that reports a broken capture ends it; a stream that does not
 * capture, or the wrong thread, does not. */
#define END_CAPTURE(name)                                                                          \
	EXPORT CUresult name(CUstream stream, CUgraph *graph)                                      \
	{                                                                                          \
		CUresult result;                                                                   \
		NEED(name, (CUstream, CUgraph *));                                                 \
		result = real(stream, graph);                                                      \
		if (result != CUDA_ERROR_ILLEGAL_STATE &&                                          \
		    result != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD &&                            \
		    result != CUDA_ERROR_INVALID_VALUE && result != CUDA_ERROR_INVALID_HANDLE)     \
			capture_ended();                                                           \
		return result;                                                                     \
	}

BEGIN_CAPTURE(cuStreamBeginCapture_v2)
BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz)
BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph)
BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph_ptsz)
END_CAPTURE(cuStreamEndCapture)
END_CAPTURE(cuStreamEndCapture_ptsz)

/* -- lookups ----------------------------------------------------------------- */

CUresult cuGetProcAddress(const char *name, void **pointer, int version, cuuint64_t flags);
EXPORT CUresult cuGetProcAddress(const char *name, void **pointer, int version, cuuint64_t flags)
{
	NEED(cuGetProcAddress, (const char *, void **, int, cuuint64_t));
	TRY(real(name, pointer, version, flags));
	*pointer = wrapper_of(*pointer);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **pointer, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status)
{
	NEED(cuGetProcAddress_v2,
	     (const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *));
	TRY(real(name, pointer, version, flags, status));
	*pointer = wrapper_of(*pointer);
	return CUDA_SUCCESS;
}
