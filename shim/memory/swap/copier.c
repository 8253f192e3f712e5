/* copier.c: copying the segments of a device to the host and back.
 *
 * A stream of our own has a few copies in flight, so that the next segment is
 * mapped, or the one before unmapped, while bytes move; where one process evicts
 * and another restores, each piece that leaves makes room for one that comes.
 */
#include "memory/swap/copier.h"
#include "base/debug.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/changes.h"
#include "memory/kind.h"

#define SLICE (UINT64_C(4) << 20) /* of a copy to the host */

struct copier copiers[MAX_DEVICES];
struct swap_now swap_now;

static bool complained;

static bool prepare(struct copier *c, CUcontext context)
{
	if (c->context)
		return c->context == context;
	if (REAL(cuStreamCreate)(&c->stream, CU_STREAM_NON_BLOCKING))
		return false;
	c->context = context;
	return true;
}

/* A copy has been put on the stream; it has happened when its event has. */
CUresult copier_push(struct copier *c, struct segment *segment, bool out)
{
	struct transfer *transfer = &c->ring[(c->first + c->n) % SWAP_DEPTH];

	if (!transfer->event)
		TRY(REAL(cuEventCreate)(&transfer->event, CU_EVENT_DISABLE_TIMING));
	TRY(REAL(cuEventRecord)(transfer->event, c->stream));
	transfer->segment = segment;
	transfer->out = out;
	c->n++;
	c->in_flight += segment->size;
	return CUDA_SUCCESS;
}

/* Between the device and the store. To the host in slices: who is given access to a
 * mapping waits for the copy that is being made. */
CUresult copier_copy(struct copier *c, struct segment *segment, bool out)
{
	CUdeviceptr at = segment->base;

	segment->copy->store->pin(segment->copy);
	for (unsigned int i = 0; i < segment->copy->n; i++) {
		struct part part = segment->copy->parts[i];

		for (size_t done = 0, n; done < part.size; done += n) {
			n = out && part.size - done > SLICE ? SLICE : part.size - done;
			TRY(out ? DRIVER(cuMemcpyDtoHAsync_v2)(part.at + done, at, n, c->stream)
			        : DRIVER(cuMemcpyHtoDAsync_v2)(at, part.at + done, n, c->stream));
			at += n;
		}
	}
	return CUDA_SUCCESS;
}

/* -- what was begun with a segment is over -------------------------------------------- */

/* What was begun with a segment is over. */
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

/* Its copy is there, but it need not leave any more. */
void segment_not_evicted(struct segment *segment)
{
	lock_take(&swap_lock);
	segment->calls = gate_submitted();
	lock_give(&swap_lock);
	transfer_over(segment);
}

/* Its bytes stay where they are. */
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

/* -- steps ---------------------------------------------------------------------- */

/* How many have been copied, from the first on. */
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

static void settle_one(const struct transfer *transfer)
{
	if (transfer->out && transfer->result)
		segment_stays(transfer->segment, "it cannot be copied");
	else if (transfer->out && swap_now.mode == RESTORE)
		segment_not_evicted(transfer->segment);
	else if (transfer->out)
		segment_evicted(transfer->segment, SEGMENT_AWAY);
	else if (!transfer->result)
		segment_restored(transfer->segment);
	else
		segment_evicted(transfer->segment, SEGMENT_AWAY);
	if (transfer->result && !transfer->out)
		swap_give_up(transfer->result);
}

/* What leaves is let go by the piece: each time it is wiped, which slows the copies
 * of others for a moment however much it is. */
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

static void cannot(struct copier *c)
{
	if (swap_now.mode == EVICT)
		evict_nothing(c);
	else
		swap_give_up(CUDA_ERROR_INVALID_CONTEXT);
}

void copier_step(CUcontext context, void *argument)
{
	struct copier *c = argument;
	bool goes_on = true;

	settle(c);
	if (has_more(c) && !prepare(c, context))
		cannot(c);
	for (int i = 0; i < SWAP_AT_ONCE && goes_on && has_more(c); i++)
		goes_on = swap_now.mode == EVICT ? evict_one(c) : restore_some(c);
	c->busy = c->n || (swap_now.mode != RESTORE && has_more(c));
}

/* They go with the context; what is left to do stays. */
static void end_stream(struct copier *c)
{
	REAL(cuStreamSynchronize)(c->stream);
	settle(c);
	for (int i = 0; i < SWAP_DEPTH; i++) {
		if (c->ring[i].event)
			REAL(cuEventDestroy_v2)(c->ring[i].event);
		c->ring[i].event = NULL;
	}
	REAL(cuStreamDestroy_v2)(c->stream);
	c->context = NULL;
}

static void end_in(CUcontext context)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		if (copiers[d].context == context)
			end_stream(&copiers[d]);
	swap_store->context_ends(context);
}

/* A context ends, in a thread of the program; its lock is held. */
void swap_context_ends(CUcontext context)
{
	if (swap_used())
		memory_in_context(context, end_in);
}

static void in_child(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		copiers[d] = (struct copier){0};
	swap_now = (struct swap_now){0};
}
FORK_WATCH(in_child);
