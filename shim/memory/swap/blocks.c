/* blocks.c: blocks, which are ranges of reserved addresses divided into segments. */
#include "memory/swap/blocks.h"

#include "base/clock.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/changes.h"
#include "memory/limit.h"
#include "memory/reclaim.h"
#include "memory/shortage.h"
#include "memory/swap/lane.h"
#include "memory/swap/segments.h"
#include "memory/swap/slabs.h"

#include <search.h>
#include <stdlib.h>

static void *blocks;           /* a tree of search.h, by address */
static unsigned long n_blocks; /* made so far */

/* Blocks do not overlap. A key that lies in a block is equal to it. */
static int compare(const void *a, const void *b)
{
	const struct block *x = a, *y = b;

	return x->base + x->size <= y->base ? -1 : x->base >= y->base + y->size;
}

struct block *block_find(CUdeviceptr pointer)
{
	struct block key = {.base = pointer, .size = 1};
	void *node = tfind(&key, &blocks, compare);

	return node ? *(struct block **)node : NULL;
}

static struct block *new_block(CUdeviceptr base, size_t size, struct lane *lane)
{
	size_t piece = lane->piece, n = (size + piece - 1) / piece;
	struct block *block = calloc(1, sizeof(*block) + n * sizeof(block->segments[0]));

	if (!block)
		return NULL;
	block->base = base;
	block->size = size;
	block->lane = lane;
	block->n = (unsigned int)n;
	for (size_t i = 0; i < n; i++) {
		struct segment *segment = &block->segments[i];

		segment->block = block;
		segment->base = base + i * piece;
		segment->size = size - i * piece < piece ? size - i * piece : piece;
		segment->unchanged_at = segment->clean.checked_at = SWAP_CHANGED;
	}
	return block;
}

/* The caller holds swap_lock. Returns false if the host is out of memory. */
static bool enter(struct block *block)
{
	if (!block || !tsearch(block, &blocks, compare))
		return false;
	block->number = n_blocks++;
	lane_enter(block);
	return true;
}

/* Reserves addresses, without physical memory. */
static CUresult reserve_block(size_t size, struct lane *lane, struct block **out)
{
	CUdeviceptr base;
	struct block *block;
	CUresult result;
	bool entered;

	result = REAL(cuMemAddressReserve)(&base, size, 0, 0, 0);
	if (result)
		return result;
	block = new_block(base, size, lane);
	lock_take(&swap_lock);
	entered = enter(block);
	lock_give(&swap_lock);
	if (!entered) {
		REAL(cuMemAddressFree)(base, size);
		free(block);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memory_changed();
	*out = block;
	return CUDA_SUCCESS;
}

void block_end(struct block *block)
{
	struct lane *lane = block->lane;
	uint64_t resident = 0;

	for (unsigned int i = 0; i < block->n; i++) {
		struct segment *segment = &block->segments[i];

		if (segment->state == SEGMENT_RESIDENT) {
			segment_unmap(segment);
			resident += segment->size;
		}
		if (segment->copy)
			segment->copy->store->give(segment->copy);
	}
	REAL(cuMemAddressFree)(block->base, block->size);
	lock_take(&swap_lock);
	lane->resident -= resident;
	lock_give(&swap_lock);
	free(block);
	memory_changed();
}

/* From now on block_find() does not return the block. The caller holds swap_lock. */
static void forget(struct block *block)
{
	tdelete(block, &blocks, compare);
	lane_leave(block);
}

/* The caller holds swap_lock, which is given up. Who moves the block's last segment ends it; the
 * program, which has freed it, may allocate as much at once. */
static void drop(struct block *block)
{
	CUdevice device = block->lane->device;
	uint64_t size = block->size;
	bool moves;

	forget(block);
	block->lane->bytes -= size;
	moves = block->n_moving;
	lock_give(&swap_lock);
	if (!moves)
		block_end(block);
	limit_give(device, size);
}

void block_drop(struct block *block)
{
	lock_take(&swap_lock);
	drop(block);
}

void block_free(CUdeviceptr pointer, size_t size)
{
	struct block *block;

	lock_take(&swap_lock);
	block = block_find(pointer);
	if (!block || (block->slab && !slab_give(block->slab, pointer, size))) {
		lock_give(&swap_lock);
		return;
	}
	if (block->slab)
		slab_forget(block);
	drop(block);
}

/* Makes physical memory for a new segment, if all swapped memory is resident. */
static CUresult back_segment(struct segment *segment)
{
	CUresult result = CUDA_SUCCESS;

	lock_take(&swap_lock);
	if (residency_now() && segment->state != SEGMENT_RESIDENT && !segment->moving) {
		if (segments_map(segment, 1, &result)) {
			segment_set_resident(segment);
			segment->unchanged_at = SWAP_CHANGED; /* since the gate is open */
		}
	}
	lock_give(&swap_lock);
	return result;
}

/* Makes physical memory for all segments. If the device is full this waits for other jobs to evict
 * memory: the job is within its limit, and the daemon sees from the report of this process's memory
 * how much is needed. */
static CUresult back_block(struct block *block)
{
	uint64_t since = now_ns();
	CUresult result = CUDA_SUCCESS;

	for (unsigned int i = 0; i < block->n && !result; i++) {
		result = back_segment(&block->segments[i]);
		if (result == CUDA_ERROR_OUT_OF_MEMORY)
			memory_reclaim(false);
		while (result == CUDA_ERROR_OUT_OF_MEMORY && shortage_pause(&since)) {
			memory_changed();
			result = back_segment(&block->segments[i]);
		}
	}
	memory_changed();
	return result;
}

CUresult block_make(size_t size, struct lane *lane, struct block **out)
{
	CUresult result;

	result = limit_take(lane->device, size);
	if (result)
		return result;
	result = reserve_block(size, lane, out);
	if (result) {
		limit_give(lane->device, size);
		return result;
	}
	result = back_block(*out);
	if (result)
		block_drop(*out);
	return result;
}

struct block *block_adopt(CUdeviceptr base, size_t size, struct lane *lane,
                          const CUmemAllocationProp *prop,
                          const CUmemGenericAllocationHandle *handles, uint64_t access)
{
	struct block *block = new_block(base, size, lane);
	bool entered;

	if (!block)
		return NULL;
	block->prop = prop;
	block->access = access;
	lock_take(&swap_lock);
	entered = enter(block);
	for (unsigned int i = 0; entered && i < block->n; i++) {
		block->segments[i].handle = handles[i];
		segment_set_resident(&block->segments[i]);
		block->segments[i].unchanged_at = SWAP_CHANGED;
	}
	lane->resident += entered ? size : 0;
	lock_give(&swap_lock);
	memory_changed();
	if (entered)
		return block;
	free(block);
	return NULL;
}

bool block_is_resident(const struct block *block)
{
	bool all = !block->n_moving;

	for (unsigned int i = 0; i < block->n; i++)
		all &= block->segments[i].state == SEGMENT_RESIDENT;
	return all;
}

bool block_return(struct block *block, CUmemGenericAllocationHandle *handles)
{
	struct lane *lane = block->lane;
	bool all;

	lock_take(&swap_lock);
	all = block_is_resident(block);
	if (all) {
		forget(block);
		lane->bytes -= block->size;
		lane->resident -= block->size;
	}
	lock_give(&swap_lock);
	if (!all)
		return false;
	for (unsigned int i = 0; i < block->n; i++) {
		handles[i] = block->segments[i].handle;
		if (block->segments[i].copy)
			block->segments[i].copy->store->give(block->segments[i].copy);
	}
	free(block);
	return true;
}

bool block_place(CUdeviceptr pointer, struct memory_place *out)
{
	struct block *block;

	lock_take(&swap_lock);
	block = block_find(pointer);
	if (block) {
		out->base = block->slab ? slab_start(block->slab, pointer) : block->base;
		out->device = block->lane->device;
		out->id = block->number << 24 | (out->base - block->base) >> 9;
	}
	lock_give(&swap_lock);
	return block && out->base;
}

bool block_of_program(CUdeviceptr pointer)
{
	struct block *block;
	bool is;

	if (!swap_used())
		return false;
	lock_take(&swap_lock);
	block = block_find(pointer);
	is = block && block->prop;
	lock_give(&swap_lock);
	return is;
}

static void in_child(void)
{
	blocks = NULL; /* they are the parent's */
}
FORK_WATCH(in_child);
