/* shared_export.c: memory of this process that other processes of its job open. */
#include "memory/shared.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/changes.h"
#include "memory/ranges.h"
#include "memory/shared_parts.h"
#include "memory/shortage.h"
#include "memory/swap/blocks.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Memory from a pool cannot be shared by a handle, as with the driver alone. */
bool shared_can(CUdeviceptr base)
{
	struct memory_range range;

	return memory_find(base, &range) && range.kind == &swapped_memory && !range.pool &&
	       lane_of(range.device)->exportable;
}

/* The caller holds swap_lock. */
static void fix(struct block *block)
{
	block->shared = true;
	for (unsigned int i = 0; i < block->n; i++)
		segment_set_fixed(&block->segments[i], true);
}

/* Makes the block stay on the device. Returns false if it is not resident, or if there is none
 * (*found is false). The caller is inside the gate. */
static bool fix_block(CUdeviceptr base, struct shared_handle *out, bool *found)
{
	struct block *block;
	bool fixed = false;

	lock_take(&swap_lock);
	block = block_find(base);
	*found = block && !block->prop;
	if (*found && (block->shared || block_is_resident(block))) {
		fixed = true;
		fix(block);
		out->block = block->number;
		out->offset = base - block->base;
	}
	lock_give(&swap_lock);
	if (fixed)
		memory_changed();
	return fixed;
}

CUresult shared_fix(CUdeviceptr base, struct shared_handle *out)
{
	uint64_t start = now_ns();
	struct memory_range range;
	bool fixed = false, found = true;
	CUresult result;

	if (!memory_find(base, &range))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(out->mark, SHARED_MARK, sizeof(out->mark));
	out->size = range.size;
	while (!fixed && found) {
		if (now_ns() - start >
		    EVICTION_WAIT_NS) /* a call in a call may not wait for its memory */
			return CUDA_ERROR_NOT_READY;
		result = gate_enter_for_memory();
		if (result)
			return result;
		fixed = fix_block(base, out, &found);
		gate_leave();
		if (!fixed)
			pause_us(EVICTION_PAUSE_US);
	}
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult shared_lend(CUdeviceptr base, struct shared_handle *out)
{
	struct memory_range range;
	struct block *block;

	if (!memory_find(base, &range))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(out->mark, SHARED_MARK, sizeof(out->mark));
	out->size = range.size;
	lock_take(&swap_lock);
	block = block_find(base);
	if (block && (block->prop || block->slab))
		block = NULL;
	if (block) {
		block->lent = true;
		for (unsigned int i = 0; i < block->n; i++)
			block->segments[i].unchanged_at = SWAP_CHANGED;
		out->block = block->number;
		out->offset = base - block->base;
	}
	lock_give(&swap_lock);
	return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- answering another process ------------------------------------------------------------ */

/* The caller holds swap_lock. Returns NULL if no shared block has that number. The number of a
 * freed block is not used again. */
static struct block *shared_block(uint64_t number)
{
	for_each_lane(lane)
		for (const struct segment *s = lane->newest; s; s = s->older)
			if (s->block->number == number && (s->block->shared || s->block->lent))
				return s->block;
	return NULL;
}

bool shared_stays(uint64_t number)
{
	const struct block *block;
	bool stays;

	lock_take(&swap_lock);
	block = shared_block(number);
	stays = block && block->shared;
	lock_give(&swap_lock);
	return stays;
}

/* The caller holds swap_lock. Sends descriptors of segments from part->first on, as many as fit. */
static bool send_segments(int end, const struct block *block, struct shared_part *part)
{
	int files[SHARED_AT_ONCE];
	bool sent = true;

	part->n = 0;
	while (sent && part->n < SHARED_AT_ONCE && part->first + part->n < block->n) {
		CUmemGenericAllocationHandle handle = block->segments[part->first + part->n].handle;

		sent = !DRIVER(cuMemExportToShareableHandle)(
		    &files[part->n], handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
		if (sent)
			fcntl(files[part->n++], F_SETFD, FD_CLOEXEC);
	}
	sent = sent && part_send(end, part, files);
	for (uint32_t i = 0; i < part->n; i++)
		close(files[i]);
	return sent;
}

/* The caller holds swap_lock. Returns false if no allocation begins at that offset. */
static bool describe(const struct block *block, uint64_t offset, struct shared_part *part)
{
	const uint8_t *uuid = block ? device_uuid(block->lane->device) : NULL;
	struct memory_range range;

	if (!uuid || offset >= block->size || !memory_find(block->base + offset, &range) ||
	    range.freed)
		return false;
	part->status = CUDA_SUCCESS;
	part->total = block->n;
	part->size = block->size;
	part->piece = block->segments[0].size;
	part->allocation = range.size;
	part->lent = block->lent && !block->shared;
	memcpy(part->uuid, uuid, sizeof(part->uuid));
	return true;
}

/* If this fails the other process sees the end of the connection. */
void shared_serve(const uint64_t what[2], int end, bool keep)
{
	struct shared_part part = {.mark = SHARED_PART_MARK, .status = CUDA_ERROR_INVALID_VALUE};
	struct block *block;

	lock_take(&swap_lock);
	block = shared_block(what[0]);
	keep = keep && block && !block->shared;
	if (keep)
		fix(block);
	if (!describe(block, what[1], &part))
		part_send(end, &part, NULL);
	else
		for (; part.first < block->n; part.first += part.n)
			if (!send_segments(end, block, &part))
				break;
	lock_give(&swap_lock);
	close(end);
	if (keep)
		memory_changed();
	debug("this process shares memory with another process of its job");
}
