/* ordered.c: stream-ordered memory.
 *
 * It becomes of the kind that serves the device (kind.h), and exists from the call on. What is
 * freed is kept for the next allocation of its size, as the driver's own pools do: for the same
 * stream at once, for another one when the event behind the free has happened.
 * A pool keeps as much as its release threshold says. Inside a capture ordered
 * memory is the driver's own.
 */
#include "base/compiler.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "memory/kind.h"
#include "tenant/tenant.h"
#include "work/captures.h"

#include <stdlib.h>

#define STEPS 8      /* sizes between two powers of two */
#define SMALLEST 512 /* bytes */
#define CLASSES (64 * STEPS)
#define ALWAYS_KEPT (UINT64_C(32) << 20) /* of a pool, whatever its threshold */

/* A block that was freed: its stream has not got there before `event`. */
struct kept {
	struct kept *next;
	CUdeviceptr pointer;
	size_t size;
	CUdevice device;
	CUmemoryPool pool;
	uint64_t stream;   /* the driver's number of it, 0: not known */
	CUcontext context; /* that it was freed in */
	CUevent event;     /* of that context */
	CUcontext owner;   /* that its memory ends with */
};

static struct kept *kept[CLASSES], *spare; /* by size; without a block, but with an event */
static struct lock lock = LOCK(LOCK_ORDERED);

/* Sizes grow by an eighth of a power of two, so a block serves whatever is a little smaller. */
static unsigned int class_of(size_t *size)
{
	size_t bytes = *size < SMALLEST ? SMALLEST : *size;
	unsigned int power = 63 - (unsigned int)__builtin_clzll(bytes);
	size_t step = (UINT64_C(1) << power) / STEPS;
	size_t rounded = (bytes + step - 1) / step * step;

	power = 63 - (unsigned int)__builtin_clzll(rounded);
	step = (UINT64_C(1) << power) / STEPS;
	*size = rounded;
	return power * STEPS + (unsigned int)((rounded - (UINT64_C(1) << power)) / step);
}

static uint64_t number_of(CUstream stream)
{
	unsigned long long id = 0;

	return REAL(cuStreamGetId) && !REAL(cuStreamGetId)(stream, &id) ? id : 0;
}

/* -- what is kept -------------------------------------------------------------- */

static bool happened(const struct kept *block)
{
	return REAL(cuEventQuery)(block->event) == CUDA_SUCCESS;
}

static struct kept *take(size_t size, unsigned int class, CUdevice device, CUmemoryPool pool,
                         uint64_t stream)
{
	struct kept *found = NULL;

	lock_take(&lock);
	for (struct kept **at = &kept[class]; *at && !found; at = &(*at)->next) {
		struct kept *block = *at;

		if (block->size != size || block->device != device || block->pool != pool ||
		    !((stream && block->stream == stream) || happened(block)))
			continue;
		found = block;
		*at = block->next;
		break;
	}
	lock_give(&lock);
	return found;
}

static void give_event_back(struct kept *block)
{
	block->pointer = 0;
	block->owner = NULL;
	lock_take(&lock);
	block->next = spare;
	spare = block;
	lock_give(&lock);
}

/* Nothing uses it any more. */
static void free_now(const struct kept *block)
{
	struct memory_range range;

	pool_change(block->pool, 0, -(int64_t)block->size);
	if (memory_remove(block->pointer, &range))
		range.kind->free(block->pointer, &range, false);
	else
		DRIVER(cuMemFree_v2)(block->pointer);
}

/* Take out what of a pool (NULL: of all) is more than `most` bytes, biggest
 * first; without `wait` only blocks whose streams have got there. */
static struct kept *take_excess(CUmemoryPool pool, uint64_t most, bool wait)
{
	struct kept *out = NULL;
	uint64_t excess = pool_kept(pool);

	excess = excess > most ? excess - most : 0;
	lock_take(&lock);
	for (int class = CLASSES - 1; class >= 0 && excess; class --) {
		for (struct kept **at = &kept[class]; *at && excess;) {
			struct kept *block = *at;

			if ((pool && block->pool != pool) || (!wait && !happened(block))) {
				at = &block->next;
				continue;
			}
			*at = block->next;
			block->next = out;
			out = block;
			excess -= block->size < excess ? block->size : excess;
		}
	}
	lock_give(&lock);
	return out;
}

void ordered_trim(CUmemoryPool pool, uint64_t most, bool wait)
{
	CUstreamCaptureMode old = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	struct kept *out = take_excess(pool, most, wait);

	while (out) {
		struct kept *block = out;

		out = block->next;
		if (wait)
			REAL(cuEventSynchronize)(block->event);
		free_now(block);
		give_event_back(block);
	}
	captures_mode(old);
}

/* Those whose event or memory is the context's. */
static struct kept *take_context(struct kept **list, CUcontext context, struct kept *out)
{
	for (struct kept **at = list; *at;) {
		struct kept *block = *at;

		if (block->context != context && block->owner != context) {
			at = &block->next;
			continue;
		}
		*at = block->next;
		block->next = out;
		out = block;
	}
	return out;
}

/* A context is gone, with its memory and its events. What was freed in it is free. */
void ordered_forget(CUcontext context)
{
	struct kept *out = NULL;

	lock_take(&lock);
	for (int class = 0; class < CLASSES; class ++)
		out = take_context(&kept[class], context, out);
	out = take_context(&spare, context, out);
	lock_give(&lock);
	while (out) {
		struct kept *block = out;

		out = block->next;
		if (block->owner == context)
			pool_change(block->pool, 0, -(int64_t)block->size);
		else if (block->pointer)
			free_now(block);
		if (block->context == context)
			free(block);
		else
			give_event_back(block);
	}
}

static void in_child(void)
{
	lock_after_fork(&lock);
	for (int class = 0; class < CLASSES; class ++)
		kept[class] = NULL; /* the parent's */
	spare = NULL;
}
FORK_WATCH(in_child);

/* -- allocating ------------------------------------------------------------------ */

static CUresult allocate_new(const struct memory_kind *kind, CUdeviceptr *pointer, size_t size,
                             CUdevice device, CUmemoryPool pool)
{
	CUstreamCaptureMode old = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	CUresult result;

	class_of(&size); /* rounded up to what another one may take again */
	result = memory_allocate(kind, pointer, size, device, pool);
	captures_mode(old);
	if (!result)
		pool_change(pool, (int64_t)size, 0);
	return result;
}

/* What the pool keeps and the stream may have. */
static bool allocate_kept(CUdeviceptr *pointer, size_t size, CUdevice device, CUmemoryPool pool,
                          CUstream stream)
{
	unsigned int class = class_of(&size);
	CUstreamCaptureMode old = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	struct kept *block = take(size, class, device, pool, number_of(stream));
	struct memory_range range;

	captures_mode(old);
	if (!block)
		return false;
	*pointer = block->pointer;
	memory_set_freed(*pointer, false, &range);
	pool_change(pool, (int64_t)size, -(int64_t)size);
	give_event_back(block);
	return true;
}

/* False: what is allocated on this device comes from the driver's own pools. */
static bool allocate_ours(CUdeviceptr *pointer, size_t size, CUdevice device, CUmemoryPool pool,
                          CUstream stream, CUresult *result)
{
	const struct memory_kind *kind;

	*result = CUDA_SUCCESS;
	if (allocate_kept(pointer, size, device, pool, stream))
		return true;
	*result = tenant_wait();
	if (*result)
		return true;
	kind = memory_kind_on(device);
	if (!kind->in_driver_pools)
		*result = allocate_new(kind, pointer, size, device, pool);
	return !kind->in_driver_pools;
}

/* pool NULL: the device's current one. False: the driver shall do it, and if
 * `counted` says so, its memory is the device's. */
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

/* What the driver's own pool gave, or did not give. */
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
		CUresult result;                                                                   \
		CUdevice counted;                                                                  \
		NEED(name);                                                                        \
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

/* One with an event of this context. */
static struct kept *new_block(CUcontext context)
{
	unsigned int flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC;
	struct kept *block = NULL;

	lock_take(&lock);
	for (struct kept **at = &spare; *at; at = &(*at)->next) {
		if ((*at)->context == context) {
			block = *at;
			*at = block->next;
			break;
		}
	}
	lock_give(&lock);
	if (block)
		return block;
	block = calloc(1, sizeof(*block));
	if (block && REAL(cuEventCreate)(&block->event, flags)) {
		free(block);
		return NULL;
	}
	if (block)
		block->context = context;
	return block;
}

static CUresult keep(CUdeviceptr pointer, const struct memory_range *range, CUstream stream)
{
	size_t size = range->size;
	unsigned int class = class_of(&size);
	struct kept *block;
	CUcontext context;
	CUresult result;

	TRY(REAL(cuCtxGetCurrent)(&context));
	block = new_block(context);
	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = REAL(cuEventRecord)(block->event, stream);
	if (result) {
		give_event_back(block);
		return result;
	}
	block->pointer = pointer;
	block->owner = range->context;
	block->size = range->size;
	block->device = range->device;
	block->pool = range->pool;
	block->stream = number_of(stream);
	/* Without a pool: memory of an ordinary allocation, which no pool has used. */
	pool_change(range->pool, range->pool ? -(int64_t)range->size : 0, (int64_t)range->size);
	lock_take(&lock);
	block->next = kept[class];
	kept[class] = block;
	lock_give(&lock);
	return CUDA_SUCCESS;
}

static CUresult free_ordered(CUdeviceptr pointer, CUstream stream)
{
	struct memory_range range;
	CUresult result;
	uint64_t most;

	/* A graph cannot free managed memory. */
	if (stream_captures(stream))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!memory_set_freed(pointer, true, &range))
		return CUDA_ERROR_INVALID_VALUE; /* it has been freed before */
	result = keep(pointer, &range, stream);
	if (result) {
		memory_set_freed(pointer, false, &range);
		return result;
	}
	most = pool_threshold(range.pool);
	most = most > ALWAYS_KEPT ? most : ALWAYS_KEPT;
	if (pool_kept(range.pool) > most)
		ordered_trim(range.pool, most, false);
	return CUDA_SUCCESS;
}

/* Plain memory of a pool is the driver's to free. */
#define FREE(name, stream_now)                                                                     \
	EXPORT CUresult name(CUdeviceptr pointer, CUstream stream)                                 \
	{                                                                                          \
		struct memory_range range;                                                         \
		NEED(name);                                                                        \
		if (memory_find(pointer, &range) && !range.kind->in_driver_pools)                  \
			return free_ordered(pointer, stream_now);                                  \
		memory_remove(pointer, NULL);                                                      \
		return real(pointer, stream);                                                      \
	}

FREE(cuMemFreeAsync, stream)
FREE(cuMemFreeAsync_ptsz, PER_THREAD(stream))
