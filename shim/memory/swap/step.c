/* step.c: one step of a device's transfers: finished copies are settled, and more are begun. */
#include "memory/swap/step.h"

#include "driver/lookup.h"
#include "memory/swap/copier.h"
#include "memory/swap/devices.h"
#include "memory/swap/evict.h"
#include "memory/swap/looks.h"
#include "memory/swap/restore.h"
#include "memory/swap/store.h"
#include "memory/swap/transfers.h"
#include "work/contexts.h"

/* Counts how many have been copied, from the first on. */
static void note_arrivals(struct copier *c)
{
	while (c->copied < c->n) {
		struct transfer *transfer = &c->ring[(c->first + c->copied) % SWAP_DEPTH];

		transfer->result = REAL(cuEventQuery)(transfer->event);
		if (transfer->result == CUDA_ERROR_NOT_READY)
			return;
		c->copied++;
		c->arrived += transfer->segment->size;
	}
}

static void settle_out(struct segment *segment)
{
	segment_copy_ended(segment);
	if (swap_now.mode == RESTORE)
		segment_not_evicted(segment);
	else
		segment_evicted(segment, SEGMENT_AWAY);
}

static void settle_one(const struct transfer *transfer)
{
	if (transfer->out && transfer->result)
		segment_stays(transfer->segment, "it cannot be copied");
	else if (transfer->out)
		settle_out(transfer->segment);
	else if (!transfer->result)
		segment_restored(transfer->segment);
	else
		segment_evicted(transfer->segment, SEGMENT_AWAY);
	if (transfer->result && !transfer->out)
		swap_give_up(transfer->result);
}

/* Memory that leaves is released by the piece: each time the driver wipes it, which slows the
 * copies of other processes for a moment, however much it is. */
static void settle(struct copier *c)
{
	note_arrivals(c);
	if (swap_now.mode == EVICT && c->copied < c->n &&
	    c->arrived < swap_devices[c->device].piece)
		return;
	for (; c->copied; c->copied--, c->n--) {
		struct transfer transfer = c->ring[c->first];

		c->first = (c->first + 1) % SWAP_DEPTH;
		c->in_flight -= transfer.segment->size;
		c->arrived -= transfer.segment->size;
		settle_one(&transfer);
	}
}

static bool has_more(const struct copier *c)
{
	switch (swap_now.mode) {
	case RESTORE:
		return !swap_now.gave_up;
	case PRELOAD:
		return c->left && !swap_now.gave_up;
	case EVICT:
		return c->left;
	default:
		return false;
	}
}

static void give_up_steps(struct copier *c)
{
	if (swap_now.mode == EVICT)
		evict_nothing(c);
	else
		swap_give_up(CUDA_ERROR_INVALID_CONTEXT);
}

void copier_step(CUcontext context, void *argument)
{
	struct copier *c = argument;
	bool goes_on = true, all_seen;

	settle(c);
	all_seen = looks_settle(c);
	if (has_more(c) && !copier_prepare(c, context))
		give_up_steps(c);
	for (int i = 0; i < SWAP_AT_ONCE && goes_on && has_more(c); i++)
		goes_on = swap_now.mode == EVICT ? evict_one(c) : restore_some(c);
	c->busy = c->n || !all_seen || (swap_now.mode != RESTORE && has_more(c));
}

/* The stream and the events go with the context; the amount left to do stays. */
static void end_stream(struct copier *c)
{
	REAL(cuStreamSynchronize)(c->stream);
	settle(c);
	looks_end(c);
	copier_end(c);
}

static void end_in(CUcontext context)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		if (copiers[d].context == context)
			end_stream(&copiers[d]);
	swap_store->context_ends(context);
}

/* In a thread of the program, which holds the lock of contexts.c. */
void steps_context_ends(CUcontext context)
{
	if (swap_used())
		context_run_in(context, end_in);
}
