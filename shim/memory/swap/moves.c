/* moves.c: which segments of a lane are moved next, and what follows from the end of a move. */
#include "memory/swap/moves.h"

#include "base/debug.h"
#include "base/locks.h"
#include "gate/gate.h"
#include "memory/changes.h"
#include "memory/swap/blocks.h"
#include "memory/swap/carrier.h"
#include "memory/swap/segments.h"

static bool complained;

/* -- evicting ------------------------------------------------------------------------- */

void moves_restart_out(struct lane *lane)
{
	lock_take(&swap_lock);
	lane->evict_cursor = lane->oldest;
	lock_give(&swap_lock);
}

static bool may_leave(const struct segment *s)
{
	return s->state == SEGMENT_RESIDENT && !s->moving && !s->fixed;
}

void moves_visit_next(struct lane *lane, bool (*visit)(struct segment *segment, void *argument),
                      void *argument)
{
	bool goes_on = true;

	lock_take(&swap_lock);
	for (struct segment *s = lane->evict_cursor; s && goes_on; s = s->newer)
		if (may_leave(s))
			goes_on = visit(s, argument);
	lock_give(&swap_lock);
}

struct segment *moves_begin_out(struct lane *lane)
{
	struct segment *s;

	lock_take(&swap_lock);
	s = lane->evict_cursor;
	while (s && !may_leave(s))
		s = s->newer;
	lane->evict_cursor = s ? s->newer : NULL;
	if (s)
		segment_begin_move(s);
	lock_give(&swap_lock);
	return s;
}

uint64_t moves_copies_needed(struct lane *lane, uint64_t bytes)
{
	uint64_t needed = 0;

	lock_take(&swap_lock);
	for (struct segment *s = lane->oldest; s && bytes; s = s->newer) {
		if (s->state != SEGMENT_RESIDENT || s->block->shared || carrier_takes(s))
			continue;
		if (!s->copy && s->unchanged_at != gate_submitted())
			needed += s->size;
		bytes -= s->size < bytes ? s->size : bytes;
	}
	lock_give(&swap_lock);
	return needed;
}

static bool may_be_outdated(const struct segment *s)
{
	return s->copy && s->state == SEGMENT_RESIDENT && !s->moving &&
	       s->unchanged_at != gate_submitted() && !segment_is_clean(s);
}

void moves_drop_copies(bool known_ones)
{
	lock_take(&swap_lock);
	for_each_lane(lane) {
		for (struct segment *s = lane->oldest; s; s = s->newer) {
			if (!may_be_outdated(s) || s->clean.copy_known != known_ones)
				continue;
			s->copy->store->give(s->copy);
			s->copy = NULL;
			s->clean.copy_known = false;
		}
	}
	lock_give(&swap_lock);
}

/* -- what stays since it could not be copied ------------------------------------------- */

/* Shared memory stays in any case. */
static bool is_uncopied(const struct segment *segment)
{
	return segment->fixed && !segment->block->shared;
}

uint64_t moves_staying(struct lane *lane, bool lacking)
{
	uint64_t bytes = 0;

	lock_take(&swap_lock);
	for (struct segment *s = lane->fixed ? lane->oldest : NULL; s; s = s->newer)
		bytes += is_uncopied(s) && !(lacking && s->copy) ? s->size : 0;
	lock_give(&swap_lock);
	return bytes;
}

void moves_let_leave(struct lane *lane, uint64_t available)
{
	lock_take(&swap_lock);
	for (struct segment *s = lane->fixed ? lane->oldest : NULL; s; s = s->newer) {
		uint64_t needs = s->copy ? 0 : s->size;

		if (!is_uncopied(s) || needs > available)
			continue;
		available -= needs;
		segment_set_fixed(s, false);
	}
	lock_give(&swap_lock);
}

void moves_keep_all(struct lane *lane)
{
	lock_take(&swap_lock);
	for (struct segment *s = lane->oldest; s; s = s->newer)
		if (s->state == SEGMENT_RESIDENT && !s->moving)
			segment_set_fixed(s, true);
	lock_give(&swap_lock);
	memory_changed();
}

/* -- restoring ---------------------------------------------------------------------------- */

void moves_restart_in(struct lane *lane)
{
	lock_take(&swap_lock);
	lane->restore_cursor = NULL;
	lock_give(&swap_lock);
}

static bool is_missing(const struct segment *s)
{
	if (s->state == SEGMENT_AWAY && carrier_has(s) && !carrier_is_there())
		return false;
	return !s->moving && (s->state == SEGMENT_AWAY || (s->state == SEGMENT_ABSENT &&
	                                                   s->block->lane->mode == LANE_RESTORING));
}

/* The caller holds swap_lock. Finds the newest missing segment, and older ones to which one call
 * can give access together with it; no more than `most` bytes. Returns how many. */
static unsigned int next_missing(struct lane *lane, uint64_t most,
                                 struct segment *some[MOVES_AT_ONCE])
{
	struct segment *s = lane->restore_cursor ? lane->restore_cursor : lane->newest;
	unsigned int n = 0;

	while (s && !is_missing(s))
		s = s->older;
	lane->restore_cursor = s;
	while (s && n < MOVES_AT_ONCE && is_missing(s) && s->size <= most) {
		most -= s->size;
		some[n++] = s;
		s = segment_joins_older(s) ? s->older : NULL;
	}
	return n;
}

unsigned int moves_begin_in(struct lane *lane, uint64_t most, struct segment *some[MOVES_AT_ONCE],
                            CUresult *result)
{
	struct segment *first = NULL;
	unsigned int n = 0;

	lock_take(&swap_lock);
	if (lane->missing > lane->copier.n) {
		n = next_missing(lane, most, some);
		first = lane->restore_cursor;
	}
	if (!first || first->size > lane->bytes_left)
		lane->bytes_left = 0; /* nothing is missing, or the preload ends before this */
	if (n)
		n = segments_map(some[0], n, result);
	if (n)
		lane->restore_cursor = some[n - 1]->older;
	for (unsigned int i = 0; i < n; i++) {
		segment_begin_move(some[i]);
		lane->bytes_left -=
		    some[i]->size < lane->bytes_left ? some[i]->size : lane->bytes_left;
	}
	lock_give(&swap_lock);
	return n;
}

/* -- the end of a segment's move ------------------------------------------------------------ */

/* The caller holds swap_lock, which is given up. A forgotten block ends with the last move. */
static void end_move(struct segment *segment)
{
	struct block *block = segment->block;
	bool ends;

	segment->moving = false;
	block->lane->moving--;
	ends = --block->n_moving == 0 && block->doomed;
	lock_give(&swap_lock);
	if (ends)
		block_end(block);
}

void move_end(struct segment *segment)
{
	lock_take(&swap_lock);
	end_move(segment);
}

void moves_put_back(struct segment *segment)
{
	lock_take(&swap_lock);
	if (!segment->block->doomed)
		segment->block->lane->evict_cursor = segment;
	end_move(segment);
}

void move_end_out(struct segment *segment, enum segment_state state)
{
	segment_unmap(segment);
	segment->block->lane->moved.evicted += segment->size;
	lock_take(&swap_lock);
	segment_set_gone(segment, state);
	end_move(segment);
	memory_changed();
}

void move_end_in(struct segment *segment)
{
	segment->block->lane->moved.restored += segment->size;
	lock_take(&swap_lock);
	segment_set_resident(segment);
	end_move(segment);
	memory_changed();
}

static void give_copy(struct segment *segment)
{
	if (segment->copy)
		segment->copy->store->give(segment->copy);
	segment->copy = NULL;
}

void move_end_away(struct segment *segment, struct copy *copy)
{
	lock_take(&swap_lock);
	give_copy(segment);
	segment->copy = copy;
	lock_give(&swap_lock);
	move_end_out(segment, SEGMENT_AWAY);
}

void move_end_carried(struct segment *segment, bool back)
{
	lock_take(&swap_lock);
	give_copy(segment);
	if (back) {
		segment->block->lane->moved.restored += segment->size;
		segment_set_resident(segment);
	}
	segment->unchanged_at = SWAP_CHANGED;
	end_move(segment);
	memory_changed();
}

void move_end_cancelled(struct segment *segment)
{
	lock_take(&swap_lock);
	segment_unchanged_now(segment);
	end_move(segment);
	memory_changed();
}

void moves_complain(const struct lane *lane, const char *why)
{
	if (!complained)
		complain("memory stays on device %d, so other jobs may have to wait: %s",
		         lane->device, why);
	complained = true;
}

void move_end_impossible(struct segment *segment, bool unhosted, const char *why)
{
	moves_complain(segment->block->lane, why);
	lock_take(&swap_lock);
	segment->unhosted = unhosted;
	if (!segment->block->doomed)
		segment_set_fixed(segment, true);
	end_move(segment);
	memory_changed();
}
