/* step.c: one step on a device: handles copies that have ended, and begins more. */
#include "memory/swap/step.h"

#include "driver/lookup.h"
#include "memory/swap/clean_check.h"
#include "memory/swap/copier.h"
#include "memory/swap/devices.h"
#include "memory/swap/evict.h"
#include "memory/swap/restore.h"
#include "memory/swap/store.h"
#include "memory/swap/transfers.h"
#include "work/contexts.h"

/* Counts the transfers that have ended. They end in their order. */
static void count_copied(struct copier *c)
{
	while (c->copied < c->n) {
		struct transfer *transfer = &c->ring[(c->first + c->copied) % SWAP_DEPTH];

		transfer->result = REAL(cuEventQuery)(transfer->event);
		if (transfer->result == CUDA_ERROR_NOT_READY)
			return;
		c->copied++;
		c->copied_bytes += transfer->segment->size;
	}
}

/* A copy to the host is complete. If memory is being restored by now, the segment stays. */
static void finish_copy_out(struct segment *segment)
{
	segment_copy_ended(segment);
	if (swap_progress.mode == SWAP_RESTORING)
		transfer_cancelled(segment);
	else
		transfer_evicted(segment, SEGMENT_AWAY);
}

static void finish_transfer(const struct transfer *transfer)
{
	if (transfer->out && transfer->result)
		transfer_impossible(transfer->segment, "the driver cannot copy it");
	else if (transfer->out)
		finish_copy_out(transfer->segment);
	else if (!transfer->result)
		transfer_restored(transfer->segment);
	else
		transfer_evicted(transfer->segment, SEGMENT_AWAY);
	if (transfer->result && !transfer->out)
		swap_restore_failed(transfer->result);
}

/* Handles the transfers that have ended. An eviction releases a whole piece together: whenever
 * memory is released the driver wipes it, which slows other processes' copies for a moment, however
 * much memory it is. */
static void finish_transfers(struct copier *c)
{
	count_copied(c);
	if (swap_progress.mode == SWAP_EVICTING && c->copied < c->n &&
	    c->copied_bytes < swap_devices[c->device].piece)
		return;
	for (; c->copied; c->copied--, c->n--) {
		struct transfer transfer = c->ring[c->first];

		c->first = (c->first + 1) % SWAP_DEPTH;
		c->in_flight -= transfer.segment->size;
		c->copied_bytes -= transfer.segment->size;
		finish_transfer(&transfer);
	}
}

static bool has_more(const struct copier *c)
{
	switch (swap_progress.mode) {
	case SWAP_RESTORING:
		return !swap_progress.restore_failed;
	case SWAP_PRELOADING:
		return c->bytes_left && !swap_progress.restore_failed;
	case SWAP_EVICTING:
		return c->bytes_left;
	default:
		return false;
	}
}

/* There is no stream for copies in this context. */
static void give_up(struct copier *c)
{
	if (swap_progress.mode == SWAP_EVICTING)
		evict_impossible(c);
	else
		swap_restore_failed(CUDA_ERROR_INVALID_CONTEXT);
}

void copier_step(CUcontext context, void *argument)
{
	struct copier *c = argument;
	bool goes_on = true, all_checked;

	finish_transfers(c);
	all_checked = clean_check_finish(c);
	if (has_more(c) && !copier_prepare(c, context))
		give_up(c);
	for (int i = 0; i < SWAP_AT_ONCE && goes_on && has_more(c); i++)
		goes_on = swap_progress.mode == SWAP_EVICTING ? evict_one(c) : restore_some(c);
	c->busy = c->n || !all_checked || (swap_progress.mode != SWAP_RESTORING && has_more(c));
}

/* The stream and the events end with the context. c->bytes_left stays as it is. */
static void end_stream(struct copier *c)
{
	REAL(cuStreamSynchronize)(c->stream);
	finish_transfers(c);
	clean_check_end(c);
	copier_end(c);
}

static void end_in(CUcontext context)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		if (copiers[d].context == context)
			end_stream(&copiers[d]);
	swap_store->context_ends(context);
}

void steps_context_ends(CUcontext context)
{
	if (swap_used())
		context_run_in(context, end_in);
}
