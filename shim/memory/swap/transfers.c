/* transfers.c: the end of a transfer of a segment, by its outcome. */
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
	ended = segment_moved(segment);
	lock_give(&swap_lock);
	if (ended)
		block_end(ended);
	memory_changed();
}

void segment_evicted(struct segment *segment, enum segment_state state)
{
	segment_leave(segment);
	swap_now.moved.out += segment->size;
	lock_take(&swap_lock);
	segment_left(segment, state);
	lock_give(&swap_lock);
	transfer_over(segment);
}

void segment_restored(struct segment *segment)
{
	swap_now.moved.in += segment->size;
	lock_take(&swap_lock);
	segment_landed(segment);
	lock_give(&swap_lock);
	transfer_over(segment);
}

void segment_not_evicted(struct segment *segment)
{
	lock_take(&swap_lock);
	segment->calls = gate_submitted();
	lock_give(&swap_lock);
	transfer_over(segment);
}

void segment_stays(struct segment *segment, const char *why)
{
	if (!complained)
		complain("%s: memory stays on device %d", why, segment->block->device);
	complained = true;
	lock_take(&swap_lock);
	if (!segment->block->doomed)
		segment_fix(segment, true);
	lock_give(&swap_lock);
	transfer_over(segment);
}
