/* step.c: the orders of one lane, and its steps: each handles copies that have ended, and begins
 * more. */
#include "memory/swap/step.h"

#include "base/clock.h"
#include "base/debug.h"
#include "driver/lookup.h"
#include "memory/swap/evict.h"
#include "memory/swap/moves.h"
#include "memory/swap/restore.h"
#include "work/contexts.h"

#define LONGEST_PAUSE_NS 1000000
#define PRELOAD_PAUSE_NS 10000000 /* the longest pause in a preload, which nobody waits for */

/* -- copies that have ended ------------------------------------------------------------ */

/* A copy to the host is complete. If memory is being restored by now, the segment stays. */
static void finish_copy_out(const struct lane *lane, struct segment *segment)
{
	segment_copy_ended(segment);
	if (lane->mode == LANE_RESTORING)
		move_end_cancelled(segment);
	else
		move_end_out(segment, SEGMENT_AWAY);
}

static void finish_copy(struct lane *lane, const struct transfer *transfer)
{
	if (transfer->out && transfer->result)
		move_end_impossible(transfer->segment, false, "the driver cannot copy it");
	else if (transfer->out)
		finish_copy_out(lane, transfer->segment);
	else if (!transfer->result)
		move_end_in(transfer->segment);
	else
		move_end_out(transfer->segment, SEGMENT_AWAY);
	if (transfer->result && !transfer->out)
		restore_failed(lane, transfer->result);
}

/* An eviction releases a whole piece together: whenever memory is released the driver wipes it,
 * which slows other processes' copies for a moment, however much memory it is. */
static void finish_copies(struct lane *lane)
{
	struct copier *c = &lane->copier;
	struct transfer transfer;

	copier_look(c);
	if (lane->mode == LANE_EVICTING && c->copied < c->n && c->copied_bytes < lane->piece)
		return;
	while (copier_take(c, &transfer))
		finish_copy(lane, &transfer);
}

/* The stream and the events end with the context. What shall be moved remains so. */
static void end_in(CUcontext context)
{
	for_each_lane(lane) {
		if (lane->copier.context != context)
			continue;
		REAL(cuStreamSynchronize)(lane->copier.stream);
		finish_copies(lane);
		clean_check_end(lane);
		copier_end(&lane->copier);
	}
	swap_store->context_ends(context);
}

void lanes_context_ends(CUcontext context)
{
	if (swap_used())
		context_run_in(context, end_in);
}

/* -- orders ------------------------------------------------------------------------------- */

static void report_moved(const struct lane *lane)
{
	if (lane->moved.evicted)
		debug("evicted %llu KiB, copied %llu",
		      (unsigned long long)lane->moved.evicted >> 10,
		      (unsigned long long)lane->moved.copied_to_host >> 10);
	if (lane->moved.restored)
		debug("restored %llu KiB, copied %llu",
		      (unsigned long long)lane->moved.restored >> 10,
		      (unsigned long long)lane->moved.copied_to_device >> 10);
}

static void begin(struct lane *lane, enum lane_mode mode, uint64_t bytes)
{
	lane->moved.evicted = lane->moved.copied_to_host = 0;
	lane->moved.restored = lane->moved.copied_to_device = 0;
	lane->mode = mode;
	lane->restore_failed = false;
	lane->bytes_left = bytes;
	lane->bytes_preload = 0;
	lane->pause_ns = LANE_PAUSE_NS;
	lane->free_since = lane->restored_at = now_ns();
	moves_restart_in(lane);
}

void lane_begin_restoring(struct lane *lane)
{
	begin(lane, LANE_RESTORING, 0);
	evict_unfix(lane);
}

uint64_t lane_preload(struct lane *lane, uint64_t bytes)
{
	if (lane->mode == LANE_EVICTING)
		lane->bytes_preload = bytes;
	else if (lane->mode != LANE_RESTORING)
		begin(lane, LANE_PRELOADING, bytes);
	return bytes;
}

uint64_t lane_evict(struct lane *lane, uint64_t bytes)
{
	lane->bytes_preload = 0;
	if (lane->mode != LANE_EVICTING)
		begin(lane, LANE_EVICTING, 0);
	return evict_add(lane, bytes);
}

void lane_stop(struct lane *lane)
{
	if (lane->mode != LANE_IDLE)
		report_moved(lane);
	lane->mode = LANE_IDLE;
	lane->bytes_left = lane->bytes_preload = 0;
}

/* -- a step ----------------------------------------------------------------------------------- */

static bool has_more(const struct lane *lane)
{
	switch (lane->mode) {
	case LANE_RESTORING:
		return !lane->restore_failed;
	case LANE_PRELOADING:
		return lane->bytes_left && !lane->restore_failed;
	case LANE_EVICTING:
		return lane->bytes_left;
	default:
		return false;
	}
}

/* There is no stream for copies in this context. */
static void give_up(struct lane *lane)
{
	if (lane->mode == LANE_EVICTING)
		evict_impossible(lane);
	else
		restore_failed(lane, CUDA_ERROR_INVALID_CONTEXT);
}

static void step_in(CUcontext context, void *argument)
{
	struct lane *lane = argument;
	bool goes_on = true, all_checked;

	finish_copies(lane);
	all_checked = clean_check_finish(lane);
	if (has_more(lane) && !copier_prepare(&lane->copier, context))
		give_up(lane);
	for (int i = 0; i < MOVES_AT_ONCE && goes_on && has_more(lane); i++)
		goes_on = lane->mode == LANE_EVICTING ? evict_one(lane) : restore_some(lane);
	lane->busy =
	    lane->copier.n || !all_checked || (lane->mode != LANE_RESTORING && has_more(lane));
}

static bool needs_step(struct lane *lane)
{
	return lane->busy || (lane->mode == LANE_RESTORING && lane_misses(lane)) ||
	       (lane->mode == LANE_PRELOADING && lane->bytes_left);
}

static void take_step(struct lane *lane)
{
	if (contexts_with(lane->device, lane->copier.context, step_in, lane))
		return;
	lane->busy = false;
	lane->bytes_left = 0;
	if (lane->mode == LANE_RESTORING)
		restore_failed(lane, CUDA_ERROR_INVALID_CONTEXT);
}

/* An eviction or a preload has ended. */
static void end_order(struct lane *lane)
{
	uint64_t next = lane->bytes_preload;

	lane_stop(lane);
	if (next)
		begin(lane, LANE_PRELOADING, next);
}

/* Copies have begun, or an eviction will begin some: there is a short pause. */
static void choose_pause(struct lane *lane)
{
	int64_t longest = lane->mode == LANE_PRELOADING ? PRELOAD_PAUSE_NS : LONGEST_PAUSE_NS;

	if (lane->copier.n || (lane->mode == LANE_EVICTING && lane->bytes_left))
		lane->pause_ns = LANE_PAUSE_NS;
	else if (lane->pause_ns < longest)
		lane->pause_ns *= 2;
}

bool lane_step(struct lane *lane)
{
	if (needs_step(lane))
		take_step(lane);
	if ((lane->mode == LANE_EVICTING || lane->mode == LANE_PRELOADING) && !lane->busy)
		end_order(lane);
	choose_pause(lane);
	return lane->busy || lane->mode == LANE_PRELOADING;
}
