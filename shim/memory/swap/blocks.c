/* blocks.c: blocks of addresses and the segments they consist of. */
#include "base/clock.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/changes.h"
#include "memory/kind.h"
#include "memory/swap/swap.h"

#include <search.h>
#include <stdlib.h>

struct lock swap_lock = LOCK(LOCK_SWAP);
struct swap_device swap_devices[MAX_DEVICES];
bool swap_held;

static void *blocks; /* a tree of search.h, by address */
static unsigned long n_blocks;
static atomic_bool used; /* there has been a block */

bool swap_used(void)
{
	return atomic_load_explicit(&used, memory_order_acquire);
}

CUmemAllocationProp segment_properties(CUdevice device)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};

	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = device;
	return prop;
}

/* -- segments ------------------------------------------------------------------ */

CUresult segments_allow(CUdeviceptr base, size_t size, uint64_t devices)
{
	CUmemAccessDesc access[MAX_DEVICES] = {0};
	size_t n = 0;

	for (int d = 0; d < MAX_DEVICES; d++) {
		if (!(devices >> d & 1))
			continue;
		access[n].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
		access[n].location.id = d;
		access[n++].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	}
	return REAL(cuMemSetAccess)(base, size, access, n);
}

static uint64_t access_of(const struct block *block)
{
	return block->prop ? block->access
	                   : swap_devices[block->device].peers | UINT64_C(1) << block->device;
}

bool segments_join(const struct segment *segment)
{
	const struct segment *older = segment->older;

	return older && older->base + older->size == segment->base &&
	       (older->block == segment->block || (older->block->prop && segment->block->prop)) &&
	       access_of(older->block) == access_of(segment->block);
}

static CUresult place(struct segment *segment)
{
	const struct block *block = segment->block;
	CUmemAllocationProp prop = block->prop ? *block->prop : segment_properties(block->device);
	CUresult result;

	TRY(DRIVER(cuMemCreate)(&segment->handle, segment->size, &prop, 0));
	result = DRIVER(cuMemMap)(segment->base, segment->size, 0, segment->handle, 0);
	if (result)
		DRIVER(cuMemRelease)(segment->handle);
	return result;
}

/* For all of them at once: beside copies a driver takes half a millisecond for that,
 * however much it is. Ranges that the program has reserved apart may need one each. */
static CUresult allow(struct segment *newest, unsigned int n, CUdeviceptr base, size_t size)
{
	CUresult result = segments_allow(base, size, access_of(newest->block));

	for (bool apart = result && newest->block->prop; apart && n; n--, newest = newest->older) {
		result = segments_allow(newest->base, newest->size, access_of(newest->block));
		apart = !result;
	}
	return result;
}

unsigned int segments_bring(struct segment *newest, unsigned int n, CUresult *result)
{
	struct swap_device *d = &swap_devices[newest->block->device];
	struct segment *s = newest;
	CUdeviceptr base = 0;
	CUresult allowed;
	unsigned int placed = 0;
	size_t size = 0;

	for (*result = CUDA_SUCCESS; placed < n; s = s->older) {
		*result = place(s);
		if (*result)
			break;
		base = s->base;
		size += s->size;
		placed++;
	}
	if (!placed)
		return 0;
	allowed = allow(newest, placed, base, size);
	if (!allowed) {
		d->resident += size;
		return placed;
	}
	*result = allowed;
	for (s = newest; placed; placed--, s = s->older)
		segment_leave(s);
	return 0;
}

void segment_leave(struct segment *segment)
{
	DRIVER(cuMemUnmap)(segment->base, segment->size);
	DRIVER(cuMemRelease)(segment->handle);
}

void segment_landed(struct segment *segment)
{
	segment->state = SEGMENT_RESIDENT;
	segment->calls = gate_submitted();
	if (!segment->block->doomed)
		swap_devices[segment->block->device].missing--;
}

void segment_left(struct segment *segment, enum segment_state state)
{
	struct swap_device *d = &swap_devices[segment->block->device];

	segment->state = state;
	d->resident -= segment->size;
	if (!segment->block->doomed)
		d->missing++;
}

void segment_fix(struct segment *segment, bool fixed)
{
	struct swap_device *d = &swap_devices[segment->block->device];

	if (segment->fixed != fixed)
		d->fixed += fixed ? segment->size : -segment->size;
	segment->fixed = fixed;
}

void segment_moves(struct segment *segment)
{
	segment->moving = true;
	swap_devices[segment->block->device].moving++;
	segment->block->n_moving++;
}

struct block *segment_moved(struct segment *segment)
{
	struct block *block = segment->block;

	segment->moving = false;
	swap_devices[block->device].moving--;
	return --block->n_moving == 0 && block->doomed ? block : NULL;
}

static void link_newest(struct segment *segment, struct swap_device *d)
{
	segment->older = d->newest;
	if (d->newest)
		d->newest->newer = segment;
	else
		d->oldest = segment;
	d->newest = segment;
	d->missing++;
}

static void unlink_segment(struct segment *segment, struct swap_device *d)
{
	*(segment->older ? &segment->older->newer : &d->oldest) = segment->newer;
	*(segment->newer ? &segment->newer->older : &d->newest) = segment->older;
	if (d->next_out == segment)
		d->next_out = segment->newer;
	if (d->next_in == segment)
		d->next_in = segment->older;
	if (segment->state != SEGMENT_RESIDENT)
		d->missing--;
	segment_fix(segment, false);
}

/* -- blocks -------------------------------------------------------------------- */

/* Blocks do not overlap; a key that lies in one is equal to it. */
static int compare(const void *a, const void *b)
{
	const struct block *x = a, *y = b;

	return x->base + x->size <= y->base ? -1 : x->base >= y->base + y->size;
}

/* The lock is swap_held. */
struct block *block_find(CUdeviceptr pointer)
{
	struct block key = {.base = pointer, .size = 1};
	void *node = tfind(&key, &blocks, compare);

	return node ? *(struct block **)node : NULL;
}

static struct block *new_block(CUdeviceptr base, size_t size, CUdevice device)
{
	size_t piece = swap_devices[device].piece, n = (size + piece - 1) / piece;
	struct block *block = calloc(1, sizeof(*block) + n * sizeof(block->segments[0]));

	if (!block)
		return NULL;
	block->base = base;
	block->size = size;
	block->device = device;
	block->n = (unsigned int)n;
	for (size_t i = 0; i < n; i++) {
		struct segment *segment = &block->segments[i];

		segment->block = block;
		segment->base = base + i * piece;
		segment->size = size - i * piece < piece ? size - i * piece : piece;
		segment->calls = SWAP_DIRTY;
	}
	return block;
}

/* The lock is held. */
static void know(struct block *block)
{
	struct swap_device *d = &swap_devices[block->device];

	block->number = n_blocks++;
	for (unsigned int i = 0; i < block->n; i++)
		link_newest(&block->segments[i], d);
	d->bytes += block->size;
	atomic_store(&used, true);
	atomic_store(&gate_memory, swap_held ? GATE_MEMORY_HERE : GATE_MEMORY_AWAY);
}

/* Addresses and nothing behind them yet. size: whole units. */
static CUresult make_block(size_t size, CUdevice device, struct block **out)
{
	CUdeviceptr base;
	struct block *block;

	TRY(REAL(cuMemAddressReserve)(&base, size, 0, 0, 0));
	block = new_block(base, size, device);
	lock_take(&swap_lock);
	if (!block || !tsearch(block, &blocks, compare)) {
		lock_give(&swap_lock);
		REAL(cuMemAddressFree)(base, size);
		free(block);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	know(block);
	lock_give(&swap_lock);
	memory_changed();
	*out = block;
	return CUDA_SUCCESS;
}

/* The lock is swap_held; block_end() follows without it. */
void block_forget(struct block *block)
{
	tdelete(block, &blocks, compare);
	for (unsigned int i = 0; i < block->n; i++)
		unlink_segment(&block->segments[i], &swap_devices[block->device]);
	block->doomed = true;
}

/* Nobody knows it any more. What still moves is waited for: whoever moved it comes again. */
void block_end(struct block *block)
{
	struct swap_device *d = &swap_devices[block->device];
	uint64_t resident = 0;

	for (unsigned int i = 0; i < block->n; i++) {
		struct segment *segment = &block->segments[i];

		if (segment->state == SEGMENT_RESIDENT) {
			segment_leave(segment);
			resident += segment->size;
		}
		if (segment->copy)
			arena_give(segment->copy);
	}
	REAL(cuMemAddressFree)(block->base, block->size);
	lock_take(&swap_lock);
	d->bytes -= block->size;
	d->resident -= resident;
	lock_give(&swap_lock);
	limit_give(block->device, block->size);
	free(block);
	memory_changed();
}

void block_drop(struct block *block)
{
	bool moves;

	lock_take(&swap_lock);
	block_forget(block);
	moves = block->n_moving;
	lock_give(&swap_lock);
	if (!moves)
		block_end(block);
}

/* Physical memory for a new segment, if the process may have it now. */
static CUresult back_segment(struct segment *segment)
{
	CUresult result = CUDA_SUCCESS;

	lock_take(&swap_lock);
	if (swap_held && segment->state != SEGMENT_RESIDENT && !segment->moving) {
		if (segments_bring(segment, 1, &result)) {
			segment_landed(segment);
			segment->calls = SWAP_DIRTY; /* the gate is open */
		}
	}
	lock_give(&swap_lock);
	return result;
}

/* Within the limit there is room as soon as others have left; what they still
 * have the daemon sees from what we report. */
static CUresult back_block(struct block *block)
{
	uint64_t start = now_ns();
	CUresult result = CUDA_SUCCESS;

	for (unsigned int i = 0; i < block->n && !result; i++) {
		result = back_segment(&block->segments[i]);
		if (result == CUDA_ERROR_OUT_OF_MEMORY)
			memory_reclaim(false);
		while (result == CUDA_ERROR_OUT_OF_MEMORY && now_ns() - start < ROOM_NS) {
			memory_changed();
			pause_us(ROOM_PAUSE_US);
			result = back_segment(&block->segments[i]);
		}
	}
	memory_changed();
	return result;
}

CUresult block_make(size_t size, CUdevice device, struct block **out)
{
	CUresult result;

	TRY(limit_take(device, size));
	result = make_block(size, device, out);
	if (result) {
		limit_give(device, size);
		return result;
	}
	result = back_block(*out);
	if (result)
		block_drop(*out);
	return result;
}

struct block *block_adopt(CUdeviceptr base, size_t size, CUdevice device,
                          const CUmemAllocationProp *prop,
                          const CUmemGenericAllocationHandle *handles, uint64_t access)
{
	struct block *block = new_block(base, size, device);
	bool entered;

	if (!block)
		return NULL;
	block->prop = prop;
	block->access = access;
	lock_take(&swap_lock);
	entered = tsearch(block, &blocks, compare) != NULL;
	if (entered)
		know(block);
	for (unsigned int i = 0; entered && i < block->n; i++) {
		block->segments[i].handle = handles[i];
		segment_landed(&block->segments[i]);
		block->segments[i].calls = SWAP_DIRTY;
	}
	swap_devices[device].resident += entered ? size : 0;
	lock_give(&swap_lock);
	memory_changed();
	if (entered)
		return block;
	free(block);
	return NULL;
}

bool block_return(struct block *block, CUmemGenericAllocationHandle *handles)
{
	struct swap_device *d = &swap_devices[block->device];
	bool all;

	lock_take(&swap_lock);
	all = !block->n_moving;
	for (unsigned int i = 0; i < block->n; i++)
		all &= block->segments[i].state == SEGMENT_RESIDENT;
	if (all) {
		block_forget(block);
		d->bytes -= block->size;
		d->resident -= block->size;
	}
	lock_give(&swap_lock);
	if (!all)
		return false;
	for (unsigned int i = 0; i < block->n; i++) {
		handles[i] = block->segments[i].handle;
		if (block->segments[i].copy)
			arena_give(block->segments[i].copy);
	}
	free(block);
	return true;
}

static void in_child(void)
{
	lock_after_fork(&swap_lock);
	for (int d = 0; d < MAX_DEVICES; d++)
		swap_devices[d] = (struct swap_device){0};
	swap_held = false;
	blocks = NULL; /* the parent's */
	atomic_store(&used, false);
}
FORK_WATCH(in_child);
