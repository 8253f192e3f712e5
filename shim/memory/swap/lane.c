/* lane.c: lanes, blocks and segments as data, and their lock. */
#include "memory/swap/lane.h"

#include "base/fork.h"
#include "base/locks.h"
#include "gate/barrier.h"
#include "gate/gate.h"

#include <string.h>

struct lock swap_lock = LOCK(LOCK_SWAP);
struct lane lanes[MAX_DEVICES];

static bool all_resident; /* a residency lasts; under swap_lock */
static atomic_bool used;  /* the process has had a block */

void lane_set_up(struct lane *lane, CUdevice device, bool usable, bool exportable, size_t unit,
                 size_t piece)
{
	lock_take(&swap_lock);
	if (!lane->asked) {
		lane->device = lane->copier.device = device;
		lane->usable = usable;
		lane->exportable = exportable;
		lane->unit = unit;
		lane->piece = piece;
		lane->asked = true;
	}
	lock_give(&swap_lock);
}

bool swap_used(void)
{
	return atomic_load_explicit(&used, memory_order_acquire);
}

void swap_note_use(void)
{
	lock_take(&swap_lock);
	atomic_store(&used, true);
	atomic_store(&gate_memory, all_resident ? GATE_MEMORY_HERE : GATE_MEMORY_AWAY);
	lock_give(&swap_lock);
}

/* -- what there is on a lane ---------------------------------------------------------- */

uint64_t lane_bytes(struct lane *lane)
{
	uint64_t bytes;

	lock_take(&swap_lock);
	bytes = lane->bytes;
	lock_give(&swap_lock);
	return bytes;
}

bool lane_misses(struct lane *lane)
{
	bool misses;

	lock_take(&swap_lock);
	misses = lane->missing;
	lock_give(&swap_lock);
	return misses;
}

void lane_report(CUdevice device, struct gl_device *out)
{
	const struct lane *lane = lane_of(device);

	lock_take(&swap_lock);
	out->bytes += lane->bytes - lane->fixed;
	out->fixed += lane->fixed;
	out->resident += lane->resident - lane->fixed;
	lock_give(&swap_lock);
}

/* Which of the amounts counts a segment that is fixed. */
static uint64_t *reason(const struct segment *segment, struct gl_details *out)
{
	if (segment->block->shared)
		return &out->shared;
	return segment->unhosted ? &out->unhosted : &out->other;
}

void lane_explain(CUdevice device, struct gl_details *out)
{
	struct lane *lane = lane_of(device);

	lock_take(&swap_lock);
	for (struct segment *s = lane->fixed ? lane->oldest : NULL; s; s = s->newer)
		if (s->fixed)
			*reason(s, out) += s->size;
	lock_give(&swap_lock);
	out->left += atomic_exchange(&lane->evicted_clean, 0);
}

uint64_t lanes_named(const struct gl_memory *amounts,
                     uint64_t (*what)(struct lane *lane, uint64_t bytes))
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < amounts->n_devices && i < GL_MAX_DEVICES; i++) {
		CUdevice device = device_of(amounts->devices[i].uuid);

		sum += device < 0 ? 0 : what(lane_of(device), amounts->devices[i].bytes);
	}
	return sum;
}

/* -- residency -------------------------------------------------------------------------- */

bool residency_now(void)
{
	return all_resident;
}

bool residency_lasts(void)
{
	bool now;

	lock_take(&swap_lock);
	now = all_resident;
	lock_give(&swap_lock);
	return now;
}

bool residency_begin(void)
{
	bool all = true;

	lock_take(&swap_lock);
	for_each_lane(lane)
		all &= !lane->moving && (!lane->missing || lane->restore_failed);
	if (all) {
		all_resident = true;
		atomic_store(&gate_memory, swap_used() ? GATE_MEMORY_HERE : GATE_MEMORY_STAYS);
	}
	lock_give(&swap_lock);
	return all;
}

bool residency_end(void)
{
	lock_take(&swap_lock);
	all_resident = false;
	if (swap_used())
		atomic_store(&gate_memory, GATE_MEMORY_AWAY);
	lock_give(&swap_lock);
	if (swap_used())
		gate_barrier();
	return swap_used();
}

/* -- segments; the caller holds swap_lock ------------------------------------------------ */

static void link_newest(struct lane *lane, struct segment *segment)
{
	segment->older = lane->newest;
	*(lane->newest ? &lane->newest->newer : &lane->oldest) = segment;
	lane->newest = segment;
	lane->missing++;
}

void lane_enter(struct block *block)
{
	for (unsigned int i = 0; i < block->n; i++)
		link_newest(block->lane, &block->segments[i]);
	block->lane->bytes += block->size;
	atomic_store(&used, true);
	atomic_store(&gate_memory, all_resident ? GATE_MEMORY_HERE : GATE_MEMORY_AWAY);
}

static void unlink_segment(struct lane *lane, struct segment *segment)
{
	*(segment->older ? &segment->older->newer : &lane->oldest) = segment->newer;
	*(segment->newer ? &segment->newer->older : &lane->newest) = segment->older;
	if (lane->evict_cursor == segment)
		lane->evict_cursor = segment->newer;
	if (lane->restore_cursor == segment)
		lane->restore_cursor = segment->older;
	if (segment->state != SEGMENT_RESIDENT)
		lane->missing--;
	segment_set_fixed(segment, false);
}

void lane_leave(struct block *block)
{
	for (unsigned int i = 0; i < block->n; i++)
		unlink_segment(block->lane, &block->segments[i]);
	block->doomed = true;
}

void segment_set_resident(struct segment *segment)
{
	segment->state = SEGMENT_RESIDENT;
	segment_unchanged_now(segment);
	if (!segment->block->doomed)
		segment->block->lane->missing--;
}

/* What others write to a lent block, no submission of this process tells of. */
void segment_unchanged_now(struct segment *segment)
{
	segment->unchanged_at = segment->block->lent ? SWAP_CHANGED : gate_submitted();
}

void segment_set_gone(struct segment *segment, enum segment_state state)
{
	struct lane *lane = segment->block->lane;

	if (segment->state == SEGMENT_RESIDENT && !segment->block->doomed)
		lane->missing++; /* one that was to come back has been missing all the time */
	segment->state = state;
	lane->resident -= segment->size;
}

void segment_set_fixed(struct segment *segment, bool fixed)
{
	if (segment->fixed != fixed)
		segment->block->lane->fixed += fixed ? segment->size : -segment->size;
	segment->fixed = fixed;
	segment->unhosted = segment->unhosted && fixed;
}

bool segment_is_clean(const struct segment *s)
{
	return !s->block->lent && s->copy && s->clean.copy_known &&
	       s->clean.checked_at == gate_submitted() &&
	       fingerprints_equal(s->clean.copy_print, s->clean.device_print);
}

void segment_begin_move(struct segment *segment)
{
	segment->moving = true;
	segment->block->lane->moving++;
	segment->block->n_moving++;
}

static void in_child(void)
{
	lock_after_fork(&swap_lock);
	memset(lanes, 0, sizeof(lanes));
	all_resident = false;
	atomic_store(&used, false);
}
FORK_WATCH(in_child);
