/* ordered.c: stream-ordered memory.
 *
 * It becomes managed: it exists from the call on, and is freed when its stream
 * has got there. Inside a capture it is the driver's own.
 */
#include "memory.h"

#include <pthread.h>
#include <stdlib.h>

/* Memory that its stream has not got to freeing yet. */
static struct deferred {
	struct deferred *next;
	CUdeviceptr pointer;
	CUevent event;
} *deferred;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What the driver's ordered calls may do beside a capture of another thread,
 * ours may too, though they are made of calls that may not. */
static CUstreamCaptureMode exchange_mode(CUstreamCaptureMode mode)
{
	if (captures_exist() && REAL(cuThreadExchangeStreamCaptureMode))
		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	return mode;
}

static struct deferred *take_finished(bool wait)
{
	struct deferred *done = NULL;

	pthread_mutex_lock(&lock);
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
	pthread_mutex_unlock(&lock);
	return done;
}

void free_deferred(bool wait)
{
	CUstreamCaptureMode old = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	struct deferred *done = take_finished(wait);

	while (done) {
		struct deferred *d = done;

		done = d->next;
		REAL(cuEventDestroy_v2)(d->event);
		memory_remove(d->pointer);
		DRIVER(cuMemFree_v2)(d->pointer);
		free(d);
	}
	exchange_mode(old);
}

void deferred_after_fork(void)
{
	pthread_mutex_init(&lock, NULL);
	deferred = NULL; /* the parent's */
}

static CUresult allocate_managed(CUdeviceptr *pointer, size_t size, CUdevice device,
                                 CUmemoryPool pool)
{
	CUstreamCaptureMode old;
	CUresult result;

	TRY(memory_room(size, device));
	free_deferred(false);
	old = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	result = DRIVER(cuMemAllocManaged)(pointer, size, CU_MEM_ATTACH_GLOBAL);
	exchange_mode(old);
	if (!result)
		memory_add(*pointer, size, device, MEMORY_MANAGED, pool);
	return result;
}

/* pool NULL: the device's current one. False: the driver shall do it, and if
 * `counted` says so, its memory is the device's. */
static bool allocate(CUdeviceptr *pointer, size_t size, CUmemoryPool pool, CUstream stream,
                     CUresult *result, CUdevice *counted)
{
	CUdevice device;

	*counted = -1;
	if (stream_captures(stream) || !pointer || !size || REAL(cuCtxGetDevice)(&device) ||
	    !DRIVER(cuMemAllocManaged))
		return false;
	if (!pool && REAL(cuDeviceGetMemPool))
		REAL(cuDeviceGetMemPool)(&pool, device);
	device = pool_device(pool, device);
	if (pool_kind(pool) == POOL_NOT_OURS)
		return false;
	if (pool_kind(pool) == POOL_BECOMES_MANAGED) {
		*result = allocate_managed(pointer, size, device, pool);
		return true;
	}
	*counted = device;
	*result = memory_room(size, device);
	return *result != CUDA_SUCCESS;
}

#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

#define ALLOC(name, from, stream_now, parameters, arguments)                                       \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		CUresult result;                                                                   \
		CUdevice counted;                                                                  \
		NEED(name);                                                                        \
		if (allocate(pointer, size, from, stream_now, &result, &counted))                  \
			return result;                                                             \
		TRY(real arguments);                                                               \
		if (counted >= 0)                                                                  \
			memory_add(*pointer, size, counted, MEMORY_FIXED, NULL);                   \
		return CUDA_SUCCESS;                                                               \
	}

ALLOC(cuMemAllocAsync, NULL, stream, (CUdeviceptr * pointer, size_t size, CUstream stream),
      (pointer, size, stream))
ALLOC(cuMemAllocAsync_ptsz, NULL, PER_THREAD(stream),
      (CUdeviceptr * pointer, size_t size, CUstream stream), (pointer, size, stream))
ALLOC(cuMemAllocFromPoolAsync, pool, stream,
      (CUdeviceptr * pointer, size_t size, CUmemoryPool pool, CUstream stream),
      (pointer, size, pool, stream))
ALLOC(cuMemAllocFromPoolAsync_ptsz, pool, PER_THREAD(stream),
      (CUdeviceptr * pointer, size_t size, CUmemoryPool pool, CUstream stream),
      (pointer, size, pool, stream))

static CUresult defer(CUdeviceptr pointer, CUstream stream)
{
	struct deferred *d = malloc(sizeof(*d));
	CUresult result;

	if (!d)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*d = (struct deferred){.pointer = pointer};
	result = REAL(cuEventCreate)(&d->event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
	if (!result && (result = REAL(cuEventRecord)(d->event, stream)))
		REAL(cuEventDestroy_v2)(d->event);
	if (result) {
		free(d);
		return result;
	}
	pthread_mutex_lock(&lock);
	d->next = deferred;
	deferred = d;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

static CUresult free_ordered(CUdeviceptr pointer, CUstream stream)
{
	/* A graph cannot free managed memory. */
	return stream_captures(stream) ? CUDA_ERROR_NOT_SUPPORTED : defer(pointer, stream);
}

/* Plain memory of a pool is the driver's to free. */
static bool is_managed(CUdeviceptr pointer)
{
	return memory_kind_of(pointer) == MEMORY_MANAGED;
}

#define FREE(name, stream_now)                                                                     \
	EXPORT CUresult name(CUdeviceptr pointer, CUstream stream)                                 \
	{                                                                                          \
		NEED(name);                                                                        \
		if (is_managed(pointer))                                                           \
			return free_ordered(pointer, stream_now);                                  \
		memory_remove(pointer);                                                            \
		return real(pointer, stream);                                                      \
	}

FREE(cuMemFreeAsync, stream)
FREE(cuMemFreeAsync_ptsz, PER_THREAD(stream))
