/* evict.c: evicts segments from a lane, the oldest first. */
#include "memory/swap/evict.h"

#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/changes.h"
#include "memory/swap/carrier.h"
#include "memory/swap/lane.h"
#include "memory/swap/moves.h"

#define PIECES_AT_ONCE 3 /* the most bytes that are being copied from a device, in pieces */

/* -- what shall be evicted ----------------------------------------------------------- */

void evict_unfix(struct lane *lane)
{
	uint64_t lacking = moves_staying(lane, true);

	moves_let_leave(lane, lacking ? swap_store->grow(lacking) : 0);
}

uint64_t evict_unfix_ready(struct lane *lane)
{
	uint64_t before = moves_staying(lane, false), left;

	if (!before || !copier_can_copy(&lane->copier))
		return before;
	moves_let_leave(lane, swap_store->ready());
	left = moves_staying(lane, false);
	if (left < before)
		memory_changed();
	return left;
}

uint64_t evict_add(struct lane *lane, uint64_t bytes)
{
	uint64_t copies = moves_copies_needed(lane, bytes);

	evict_unfix(lane);
	moves_restart_out(lane);
	lane->bytes_left =
	    bytes > UINT64_MAX - lane->bytes_left ? UINT64_MAX : lane->bytes_left + bytes;
	lane->busy = true;
	return copies;
}

void evict_impossible(struct lane *lane)
{
	moves_complain(lane, "the driver makes no stream for copies");
	lane->bytes_left = 0;
	lane->stays = true;
	moves_keep_all(lane);
}

/* -- one segment ------------------------------------------------------------------------- */

/* Sets segment->copy, unless it has one. If there is no host memory, copies that may be outdated
 * are given up for it. */
static enum store_answer take_copy(struct segment *segment)
{
	enum store_answer answer = segment->copy ? STORE_READY : STORE_NONE;

	if (!segment->copy)
		answer = swap_store->take(segment->size, &segment->copy);
	for (int known = 0; known < 2 && answer == STORE_NONE; known++) {
		moves_drop_copies(known);
		answer = swap_store->take(segment->size, &segment->copy);
	}
	return answer;
}

/* The segment, for whose copy there is no host memory (unhosted) or which the driver does not copy,
 * stays until that is tried again, or for good if the context is broken. */
static void stay(struct lane *lane, struct segment *segment, bool unhosted)
{
	CUresult status = REAL(cuStreamQuery)(lane->copier.stream);
	bool broken = status && status != CUDA_ERROR_NOT_READY;

	if (!broken)
		lane->stays = true;
	move_end_impossible(segment, unhosted && !broken,
	                    broken     ? "the context is broken"
	                    : unhosted ? "there is no host memory for a copy "
	                                 "(a larger --mem gives more)"
	                               : "the driver cannot copy it");
}

static void subtract_evicted(struct lane *lane, const struct segment *segment)
{
	lane->bytes_left -= segment->size < lane->bytes_left ? segment->size : lane->bytes_left;
}

static bool copier_is_full(const struct lane *lane, size_t size)
{
	const struct copier *c = &lane->copier;

	return c->n == COPIER_DEPTH || (c->n && c->in_flight + size > PIECES_AT_ONCE * lane->piece);
}

static void copy_out(struct lane *lane, struct segment *segment)
{
	segment_copy_begins(segment);
	if (copier_begin(&lane->copier, segment, true)) {
		stay(lane, segment, false);
		return;
	}
	lane->moved.copied_to_host += segment->size;
	subtract_evicted(lane, segment);
}

/* No segment can be evicted now. One that is still being restored may have to be evicted again. */
static void none_is_next(struct lane *lane)
{
	if (copier_restores(&lane->copier) || carrier_busy())
		moves_restart_out(lane);
	else
		lane->bytes_left = 0;
}

/* Does the segment, which is being moved, need no new copy? That is so if nothing has been
 * submitted since it became resident (the gate is shut and empty, so the number is exact), or if
 * its fingerprint equals its copy's. */
static bool is_unchanged(const struct segment *segment)
{
	return segment->unchanged_at == gate_submitted() || segment_is_clean(segment);
}

bool evict_one(struct lane *lane)
{
	enum carrier_answer carried;
	enum store_answer answer;
	struct segment *segment;
	bool later;

	if (!carrier_is_there() && clean_check_before_evicting(lane))
		return false;
	segment = moves_begin_out(lane);
	if (!segment) {
		none_is_next(lane);
		return false;
	}
	if (is_unchanged(segment)) {
		subtract_evicted(lane, segment);
		lane->evicted_clean += segment->size;
		move_end_out(segment, segment->copy ? SEGMENT_AWAY : SEGMENT_ABSENT);
		return true;
	}
	carried = carrier_ask(segment, true);
	if (carried == CARRIER_BEGUN) {
		subtract_evicted(lane, segment);
		return true;
	}
	later = carried == CARRIER_LATER || copier_is_full(lane, segment->size);
	answer = later ? STORE_LATER : take_copy(segment);
	if (answer == STORE_LATER) {
		moves_put_back(segment);
		return false;
	}
	if (answer == STORE_NONE)
		stay(lane, segment, true);
	else
		copy_out(lane, segment);
	return true;
}
