/* free_blocks.c: memory that was freed in stream order is kept for the next allocation of its size.
 *
 * As with the driver's own pools, a block is reused in the same stream at once, and in another
 * stream when the event behind the free has happened. A pool keeps as many bytes as its release
 * threshold says.
 */
#include "memory/free_blocks.h"

#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "memory/pools.h"
#include "memory/ranges.h"
#include "memory/reclaim.h"
#include "work/captures.h"
#include "work/contexts.h"

#include <stdlib.h>

#define STEPS 8      /* sizes from one power of two to the next */
#define SMALLEST 512 /* bytes */
#define CLASSES (64 * STEPS)

/* A block that was freed. Work may use it until `event` has happened. */
struct free_block {
	struct free_block *next;
	CUdeviceptr pointer;
	size_t size;
	CUdevice device;
	CUmemoryPool pool;
	uint64_t stream; /* the driver's number of the stream that it was freed in; 0: not known */
	CUcontext context; /* that it was freed in */
	CUevent event;     /* of that context */
	CUcontext owner;   /* the context that its memory ends with */
};

static struct free_block *free_blocks[CLASSES];
static struct free_block *spare; /* entries without a block, whose events can be used again */
static struct lock lock = LOCK(LOCK_ORDERED);

/* Rounds the size up to the next eighth of a power of two, so that a block also serves allocations
 * that are a little smaller. Returns the number of that size. */
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

static bool may_reuse(const struct free_block *block)
{
	return REAL(cuEventQuery)(block->event) == CUDA_SUCCESS;
}

static struct free_block *take(size_t size, unsigned int class, CUdevice device, CUmemoryPool pool,
                               uint64_t stream)
{
	struct free_block *found = NULL;

	lock_take(&lock);
	for (struct free_block **at = &free_blocks[class]; *at && !found; at = &(*at)->next) {
		struct free_block *block = *at;

		if (block->size != size || block->device != device || block->pool != pool ||
		    !((stream && block->stream == stream) || may_reuse(block)))
			continue;
		found = block;
		*at = block->next;
		break;
	}
	lock_give(&lock);
	return found;
}

static void keep_event(struct free_block *block)
{
	block->pointer = 0;
	block->owner = NULL;
	lock_take(&lock);
	block->next = spare;
	spare = block;
	lock_give(&lock);
}

/* Frees a block that no work uses any more. */
static void free_now(const struct free_block *block)
{
	struct memory_range range;

	pool_change(block->pool, 0, -(int64_t)block->size);
	if (memory_remove(block->pointer, &range))
		range.kind->free(block->pointer, &range, false);
	else
		DRIVER(cuMemFree_v2)(block->pointer);
}

/* Takes blocks out of a pool (NULL: out of all pools), the largest first, until it keeps no more
 * than `most` bytes. Without `wait` only blocks are taken whose events have happened. */
static struct free_block *take_excess(CUmemoryPool pool, uint64_t most, bool wait)
{
	struct free_block *out = NULL;
	uint64_t excess = pool_kept(pool);

	excess = excess > most ? excess - most : 0;
	lock_take(&lock);
	for (int class = CLASSES - 1; class >= 0 && excess; class --) {
		for (struct free_block **at = &free_blocks[class]; *at && excess;) {
			struct free_block *block = *at;

			if ((pool && block->pool != pool) || (!wait && !may_reuse(block))) {
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

void free_blocks_trim(CUmemoryPool pool, uint64_t most, bool wait)
{
	CUstreamCaptureMode old = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	struct free_block *out = take_excess(pool, most, wait);

	while (out) {
		struct free_block *block = out;

		out = block->next;
		if (wait)
			REAL(cuEventSynchronize)(block->event);
		free_now(block);
		keep_event(block);
	}
	captures_mode(old);
}

/* Takes blocks out whose event or memory belongs to the context, and adds them to `out`. */
static struct free_block *take_context(struct free_block **list, CUcontext context,
                                       struct free_block *out)
{
	for (struct free_block **at = list; *at;) {
		struct free_block *block = *at;

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

/* A context has ended, and with it its memory, its events and its work. */
static void context_gone(CUcontext context)
{
	struct free_block *out = NULL;

	lock_take(&lock);
	for (int class = 0; class < CLASSES; class ++)
		out = take_context(&free_blocks[class], context, out);
	out = take_context(&spare, context, out);
	lock_give(&lock);
	while (out) {
		struct free_block *block = out;

		out = block->next;
		if (block->owner == context)
			pool_change(block->pool, 0, -(int64_t)block->size);
		else if (block->pointer)
			free_now(block);
		if (block->context == context)
			free(block);
		else
			keep_event(block);
	}
}
CONTEXT_WATCH(NULL, context_gone);

static void reclaim(bool wait)
{
	free_blocks_trim(NULL, 0, wait);
}
RECLAIM_WATCH(reclaim);

static void in_child(void)
{
	lock_after_fork(&lock);
	for (int class = 0; class < CLASSES; class ++)
		free_blocks[class] = NULL; /* they are the parent's */
	spare = NULL;
}
FORK_WATCH(in_child);

bool free_block_reuse(CUdeviceptr *pointer, size_t size, CUdevice device, CUmemoryPool pool,
                      CUstream stream)
{
	unsigned int class = class_of(&size);
	CUstreamCaptureMode old = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	struct free_block *block = take(size, class, device, pool, number_of(stream));
	struct memory_range range;

	captures_mode(old);
	if (!block)
		return false;
	*pointer = block->pointer;
	memory_set_freed(*pointer, false, &range);
	pool_change(pool, (int64_t)size, -(int64_t)size);
	keep_event(block);
	return true;
}

/* An entry with an event of the context, or NULL. */
static struct free_block *new_block(CUcontext context)
{
	unsigned int flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC;
	struct free_block *block = NULL;

	lock_take(&lock);
	for (struct free_block **at = &spare; *at; at = &(*at)->next) {
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

CUresult free_block_keep(CUdeviceptr pointer, const struct memory_range *range, CUstream stream)
{
	size_t size = range->size;
	unsigned int class = class_of(&size);
	struct free_block *block;
	CUcontext context;
	CUresult result;

	result = REAL(cuCtxGetCurrent)(&context);
	if (result)
		return result;
	block = new_block(context);
	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = REAL(cuEventRecord)(block->event, stream);
	if (result) {
		keep_event(block);
		return result;
	}
	block->pointer = pointer;
	block->owner = range->context;
	block->size = range->size;
	block->device = range->device;
	block->pool = range->pool;
	block->stream = number_of(stream);
	/* Memory without a pool comes from an ordinary allocation and is used in no pool. */
	pool_change(range->pool, range->pool ? -(int64_t)range->size : 0, (int64_t)range->size);
	lock_take(&lock);
	block->next = free_blocks[class];
	free_blocks[class] = block;
	lock_give(&lock);
	return CUDA_SUCCESS;
}

size_t free_block_size(size_t size)
{
	class_of(&size);
	return size;
}
