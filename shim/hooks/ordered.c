/* ordered.c: stream-ordered memory.
 *
 * It is allocated as memory of the kind that serves the device, at once and not in stream order.
 * Freed memory is kept for later allocations (free_blocks.c). During a capture the driver's own
 * stream-ordered memory is used.
 */
#include "base/compiler.h"
#include "driver/lookup.h"
#include "memory/free_blocks.h"
#include "memory/kinds.h"
#include "memory/limit.h"
#include "memory/pools.h"
#include "memory/ranges.h"
#include "tenant/tenant.h"
#include "work/captures.h"

#define ALWAYS_KEPT (UINT64_C(32) << 20) /* free bytes that every pool keeps */

/* -- allocating ------------------------------------------------------------------ */

static CUresult allocate_new(const struct memory_kind *kind, CUdeviceptr *pointer, size_t size,
                             CUdevice device, CUmemoryPool pool)
{
	CUstreamCaptureMode old = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	CUresult result;

	size = free_block_size(size); /* rounded, so that more allocations can reuse it */
	result = memory_allocate(kind, pointer, size, device, pool);
	captures_mode(old);
	if (!result)
		pool_change(pool, (int64_t)size, 0);
	return result;
}

/* Returns false if this device's memory is allocated from the driver's own pools. */
static bool allocate_ours(CUdeviceptr *pointer, size_t size, CUdevice device, CUmemoryPool pool,
                          CUstream stream, CUresult *result)
{
	const struct memory_kind *kind;

	*result = CUDA_SUCCESS;
	if (free_block_reuse(pointer, size, device, pool, stream))
		return true;
	*result = tenant_wait();
	if (*result)
		return true;
	kind = memory_kind_on(device);
	if (!kind->in_driver_pools)
		*result = allocate_new(kind, pointer, size, device, pool);
	return !kind->in_driver_pools;
}

/* pool: NULL means the device's current pool. Returns true if the call is done, with *result.
 * False: the driver has to allocate; if *counted is a device, `size` bytes have been taken from its
 * limit. */
static bool allocate(CUdeviceptr *pointer, size_t size, CUmemoryPool pool, CUstream stream,
                     CUresult *result, CUdevice *counted)
{
	CUdevice device;

	*counted = -1;
	if (stream_captures(stream) || !pointer || !size || size > SIZE_MAX / 4 ||
	    REAL(cuCtxGetDevice)(&device))
		return false;
	if (!pool && REAL(cuDeviceGetMemPool))
		REAL(cuDeviceGetMemPool)(&pool, device);
	device = pool_device(pool, device);
	if (pool_kind(pool) == POOL_NOT_OURS)
		return false;
	if (pool_kind(pool) == POOL_IS_OURS &&
	    allocate_ours(pointer, size, device, pool, stream, result))
		return true;
	*counted = device;
	*result = limit_take(device, size);
	return *result != CUDA_SUCCESS;
}

/* Enters memory that the driver's own pool has allocated, or gives its bytes back to the limit if
 * that has failed. device below 0: the memory is not counted. */
static CUresult count(CUresult result, CUdeviceptr base, size_t size, CUdevice device)
{
	if (device < 0)
		return result;
	if (result)
		limit_give(device, size);
	else
		memory_add(base, size, device, &fixed_memory, NULL);
	return result;
}

#define ALLOC(name, from, stream_now, parameters, arguments)                                       \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		__typeof__(&name) real = DRIVER(name);                                             \
		CUresult result;                                                                   \
		CUdevice counted;                                                                  \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		if (allocate(pointer, size, from, stream_now, &result, &counted))                  \
			return result;                                                             \
		result = real arguments;                                                           \
		return count(result, result ? 0 : *pointer, size, counted);                        \
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

/* -- freeing --------------------------------------------------------------------- */

static CUresult free_ordered(CUdeviceptr pointer, CUstream stream)
{
	struct memory_range range;
	CUresult result;
	uint64_t most;

	/* A graph cannot free memory that was not allocated in one. */
	if (stream_captures(stream))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!memory_set_freed(pointer, true, &range))
		return CUDA_ERROR_INVALID_VALUE; /* the program has freed it before */
	result = free_block_keep(pointer, &range, stream);
	if (result) {
		memory_set_freed(pointer, false, &range);
		return result;
	}
	most = pool_threshold(range.pool);
	most = most > ALWAYS_KEPT ? most : ALWAYS_KEPT;
	if (pool_kept(range.pool) > most)
		free_blocks_trim(range.pool, most, false);
	return CUDA_SUCCESS;
}

/* Memory that the driver's own pools have allocated is freed by the driver. */
#define FREE(name, stream_now)                                                                     \
	EXPORT CUresult name(CUdeviceptr pointer, CUstream stream)                                 \
	{                                                                                          \
		__typeof__(&name) real = DRIVER(name);                                             \
		struct memory_range range;                                                         \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		if (memory_find(pointer, &range) && !range.kind->in_driver_pools)                  \
			return free_ordered(pointer, stream_now);                                  \
		memory_remove(pointer, NULL);                                                      \
		return real(pointer, stream);                                                      \
	}

FREE(cuMemFreeAsync, stream)
FREE(cuMemFreeAsync_ptsz, PER_THREAD(stream))
