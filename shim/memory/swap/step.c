/* step.c: one step of a lane: handles copies that have ended, and begins more. */
#include "memory/swap/step.h"

#include "base/clock.h"
#include "base/debug.h"
#include "driver/lookup.h"
#include "memory/swap/carrier.h"
#include "memory/swap/evict.h"
#include "memory/swap/moves.h"
#include "work/contexts.h"

/* After this long without progress a restore is tried even if too little memory seems free. */
#define LONGEST_WAIT_NS (UINT64_C(50) * 1000000)
/* How long after a release the driver may need until the memory can be allocated again. */
#define WIPE_NS (UINT64_C(3) * 1000000)

/* -- restoring, the newest segments first ------------------------------------------------ */

/* The gate opens all the same: the program's next call returns what is wrong with its context. */
static void restore_failed(struct lane *lane, CUresult error)
{
	if (!lane->restore_failed)
		complain(
		    "swapped memory cannot be restored to the GPU (CUDA error %d), so calls that "
		    "use it fail; start the job again, and if that does not help, ask the "
		    "administrator to look at the node's GPU (dmesg)",
		    (int)error);
	lane->restore_failed = true;
}

/* How many bytes may be restored now; at most a piece. The driver wipes released memory before
 * another process can have it, and a process that allocates it too early waits for much longer than
 * the wiping takes. So one piece of the free memory is left alone, unless the number of free bytes
 * has not changed for WIPE_NS, or nothing was restored for LONGEST_WAIT_NS. */
static uint64_t restorable_bytes(struct lane *lane)
{
	uint64_t piece = lane->piece, now = now_ns();
	size_t free_bytes, total;

	if (lane->copier.in_flight > piece || lane->copier.n > COPIER_DEPTH / 2 ||
	    carrier_busy() > CARRIER_DEPTH / 2)
		return 0;
	if (REAL(cuMemGetInfo_v2)(&free_bytes, &total))
		return piece;
	if (free_bytes != lane->free_bytes)
		lane->free_since = now;
	lane->free_bytes = free_bytes;
	if (free_bytes >= 2 * piece || now - lane->free_since >= WIPE_NS ||
	    now - lane->restored_at >= LONGEST_WAIT_NS)
		return piece;
	return free_bytes > piece ? free_bytes - piece : 0;
}

static void copy_in(struct lane *lane, struct segment *segment)
{
	CUresult result = copier_begin(&lane->copier, segment, false);

	if (!result) {
		lane->moved.copied_to_device += segment->size;
		return;
	}
	restore_failed(lane, result);
	move_end_out(segment, SEGMENT_AWAY);
}

/* It is tried again if the carrier has too much to do, or has ended. */
static void carry_in(struct lane *lane, struct segment *segment)
{
	enum carrier_answer answer = carrier_ask(segment, false);

	if (answer == CARRIER_LOST)
		restore_failed(lane, CUDA_ERROR_INVALID_HANDLE);
	if (answer != CARRIER_BEGUN)
		move_end_out(segment, SEGMENT_AWAY);
}

static bool restore_some(struct lane *lane)
{
	struct segment *some[MOVES_AT_ONCE];
	CUresult result = CUDA_SUCCESS;
	uint64_t most = restorable_bytes(lane);
	unsigned int n;

	if (!most)
		return false;
	if (lane->mode == LANE_PRELOADING && most > lane->bytes_left)
		most = lane->bytes_left;
	n = moves_begin_in(lane, most, some, &result);
	for (unsigned int i = 0; i < n; i++) {
		if (carrier_has(some[i]))
			carry_in(lane, some[i]);
		else if (some[i]->state == SEGMENT_AWAY)
			copy_in(lane, some[i]);
		else
			move_end_in(some[i]);
	}
	if (n) {
		lane->restored_at = now_ns();
		lane->pause_ns = LANE_PAUSE_NS / 2; /* it is doubled after each step */
	}
	if (result && result != CUDA_ERROR_OUT_OF_MEMORY)
		restore_failed(lane, result);
	return n && !result;
}

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

/* -- what the carrier has done ------------------------------------------------------------ */

static void finish_carried(struct lane *lane, const struct transfer *transfer, struct copy *copy)
{
	struct segment *segment = transfer->segment;

	if (transfer->result && transfer->out) { /* it leaves for the host */
		moves_put_back(segment);
		moves_restart_out(lane); /* so does what was asked for before it */
		if (lane->mode == LANE_EVICTING)
			lane->bytes_left = UINT64_MAX;
	} else if (transfer->result) {
		move_end_out(segment, SEGMENT_AWAY);
	} else if (!transfer->out) {
		move_end_carried(segment, true);
	} else if (lane->mode == LANE_RESTORING) {
		copy->store->give(copy);
		move_end_carried(segment, false);
	} else {
		move_end_away(segment, copy);
	}
}

void lanes_finish_carried(void)
{
	struct transfer transfer;
	struct copy *copy;

	while (carrier_take(&transfer, &copy))
		finish_carried(transfer.segment->block->lane, &transfer, copy);
	carrier_end_if_done();
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
	lane->busy = lane->copier.n || carrier_busy() || !all_checked ||
	             (lane->mode != LANE_RESTORING && has_more(lane));
}

void lane_take_step(struct lane *lane)
{
	if (contexts_with(lane->device, lane->copier.context, step_in, lane))
		return;
	lane->busy = false;
	lane->bytes_left = 0;
	if (lane->mode == LANE_RESTORING)
		restore_failed(lane, CUDA_ERROR_INVALID_CONTEXT);
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
