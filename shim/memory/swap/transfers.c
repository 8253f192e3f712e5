/* transfers.c: what follows from the end of a segment's move. */
#include "memory/swap/transfers.h"

#include "base/debug.h"
#include "base/locks.h"
#include "gate/gate.h"
#include "memory/changes.h"
#include "memory/swap/blocks.h"
#include "memory/swap/copier.h"
#include "memory/swap/devices.h"
#include "memory/swap/segments.h"

static bool complained;

static void transfer_over(struct segment *segment)
{
	struct block *ended;

	lock_take(&swap_lock);
	ended = segment_end_move(segment);
	lock_give(&swap_lock);
	if (ended)
		block_end(ended);
	memory_changed();
}

void transfer_evicted(struct segment *segment, enum segment_state state)
{
	segment_unmap(segment);
	swap_progress.moved.evicted += segment->size;
	lock_take(&swap_lock);
	segment_set_gone(segment, state);
	lock_give(&swap_lock);
	transfer_over(segment);
}

void transfer_restored(struct segment *segment)
{
	swap_progress.moved.restored += segment->size;
	lock_take(&swap_lock);
	segment_set_resident(segment);
	lock_give(&swap_lock);
	transfer_over(segment);
}

void transfer_cancelled(struct segment *segment)
{
	lock_take(&swap_lock);
	segment->unchanged_at = gate_submitted();
	lock_give(&swap_lock);
	transfer_over(segment);
}

void transfer_complain(CUdevice device, const char *why)
{
	if (!complained)
		complain("memory stays on device %d, so other jobs may have to wait: %s", device,
		         why);
	complained = true;
}

void transfer_impossible(struct segment *segment, const char *why)
{
	transfer_complain(segment->block->device, why);
	lock_take(&swap_lock);
	if (!segment->block->doomed)
		segment_set_fixed(segment, true);
	lock_give(&swap_lock);
	transfer_over(segment);
}
