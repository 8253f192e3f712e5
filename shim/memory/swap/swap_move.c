/* swap_move.c: moving the segments of a device to the host and back.
 *
 * A stream of our own has a few copies in flight, so that the next segment is
 * mapped, or the one before unmapped, while bytes move; where one process evicts
 * and another restores, each piece that leaves makes room for one that comes.
 */
#include "base/clock.h"
#include "base/debug.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/changes.h"
#include "memory/kind.h"
#include "memory/swap/swap.h"

#define OUT_PIECES 3              /* of a device, that leave at once */
#define SLICE (UINT64_C(4) << 20) /* of a copy to the host */
#define AT_ONCE 64                /* segments that are begun with in a step */
#define PATIENCE_NS (UINT64_C(50) * 1000000)
#define CLEAN_NS (UINT64_C(3) * 1000000) /* until memory that was let go can be had */

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

static bool full(const struct copier *c, size_t size)
{
	return c->n == SWAP_DEPTH ||
	       (c->n && c->in_flight + size > OUT_PIECES * swap_devices[c->device].piece);
}

/* A copy has been put on the stream; it has happened when its event has. */
static CUresult push(struct copier *c, struct segment *segment, bool out)
{
	struct move *move = &c->ring[(c->first + c->n) % SWAP_DEPTH];

	if (!move->event)
		TRY(REAL(cuEventCreate)(&move->event, CU_EVENT_DISABLE_TIMING));
	TRY(REAL(cuEventRecord)(move->event, c->stream));
	move->segment = segment;
	move->out = out;
	c->n++;
	c->in_flight += segment->size;
	return CUDA_SUCCESS;
}

/* What was begun with a segment is over. */
static void over(struct segment *segment)
{
	struct block *ended;

	lock_take(&swap_lock);
	ended = segment_moved(segment);
	lock_give(&swap_lock);
	if (ended)
		block_end(ended);
	memory_changed();
}

static void went(struct segment *segment, enum segment_state state)
{
	segment_leave(segment);
	swap_now.moved.out += segment->size;
	lock_take(&swap_lock);
	segment_left(segment, state);
	lock_give(&swap_lock);
	over(segment);
}

static void came(struct segment *segment)
{
	swap_now.moved.in += segment->size;
	lock_take(&swap_lock);
	segment_landed(segment);
	lock_give(&swap_lock);
	over(segment);
}

/* Its copy is there, but it need not leave any more. */
static void kept(struct segment *segment)
{
	lock_take(&swap_lock);
	segment->calls = gate_submitted();
	lock_give(&swap_lock);
	over(segment);
}

/* Its bytes stay where they are. */
static void stays(struct segment *segment, const char *why)
{
	if (!complained)
		complain("%s: memory stays on device %d", why, segment->block->device);
	complained = true;
	lock_take(&swap_lock);
	if (!segment->block->doomed)
		segment_fix(segment, true);
	lock_give(&swap_lock);
	over(segment);
}

/* The program hears from its next call what is wrong with its context. */
void swap_give_up(CUresult error)
{
	if (!swap_now.gave_up)
		complain("error %d while memory is brought back", (int)error);
	swap_now.gave_up = true;
}

/* Of what has changed on the device since. */
static void drop_copies(void)
{
	lock_take(&swap_lock);
	for (int d = 0; d < MAX_DEVICES; d++) {
		for (struct segment *s = swap_devices[d].oldest; s; s = s->newer) {
			if (!s->copy || s->state != SEGMENT_RESIDENT || s->moving ||
			    s->calls == gate_submitted())
				continue;
			arena_give(s->copy);
			s->copy = NULL;
		}
	}
	lock_give(&swap_lock);
}

/* -- out ------------------------------------------------------------------------ */

/* The oldest that is there; the lock is held. */
static struct segment *next_out(struct swap_device *d)
{
	struct segment *s = d->next_out;

	while (s && (s->state != SEGMENT_RESIDENT || s->moving || s->fixed))
		s = s->newer;
	d->next_out = s ? s->newer : NULL;
	return s;
}

static void put_back(struct segment *segment, struct segment **cursor)
{
	struct block *ended;

	lock_take(&swap_lock);
	if (!segment->block->doomed)
		*cursor = segment;
	ended = segment_moved(segment);
	lock_give(&swap_lock);
	if (ended)
		block_end(ended);
}

/* Between the device and the arena. To the host in slices: who is given access to a
 * mapping waits for the copy that is being made. */
static CUresult copy(struct copier *c, struct segment *segment, bool out)
{
	CUdeviceptr at = segment->base;

	arena_pin(segment->copy);
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

static void copy_out(struct copier *c, struct segment *segment)
{
	CUresult result = copy(c, segment, true);

	if (!result)
		result = push(c, segment, true);
	if (result) {
		REAL(cuStreamSynchronize)(c->stream);
		stays(segment, "it cannot be copied");
		return;
	}
	swap_now.moved.copied_out += segment->size;
	c->left -= segment->size < c->left ? segment->size : c->left;
}

static enum arena_answer room_for(struct segment *segment)
{
	enum arena_answer answer = segment->copy ? ARENA_READY : ARENA_NONE;

	if (!segment->copy)
		answer = arena_take(segment->size, &segment->copy);
	if (answer == ARENA_NONE) {
		drop_copies();
		answer = arena_take(segment->size, &segment->copy);
	}
	return answer;
}

static const char *no_copy(const struct copier *c)
{
	CUresult status = REAL(cuStreamQuery)(c->stream);

	return status && status != CUDA_ERROR_NOT_READY ? "the context is broken"
	                                                : "there is no host memory for a copy "
	                                                  "(a larger --mem gives more)";
}

/* Without a stream nothing can be copied. */
static void all_stay(struct copier *c)
{
	complain("no stream for copies: memory stays on device %d", c->device);
	c->left = 0;
	lock_take(&swap_lock);
	for (struct segment *s = swap_devices[c->device].oldest; s; s = s->newer)
		if (s->state == SEGMENT_RESIDENT && !s->moving)
			segment_fix(s, true);
	lock_give(&swap_lock);
	memory_changed();
}

/* Something is still on its way in. */
static bool comes(const struct copier *c)
{
	for (unsigned int i = 0; i < c->n; i++)
		if (!c->ring[(c->first + i) % SWAP_DEPTH].out)
			return true;
	return false;
}

/* False: nothing more now. Without a change since it came it needs no copy: the
 * gate is shut and empty, so what has been submitted is known exactly. */
static bool evict_one(struct copier *c)
{
	struct swap_device *d = &swap_devices[c->device];
	enum arena_answer answer;
	struct segment *segment;
	bool unchanged;

	lock_take(&swap_lock);
	segment = next_out(d);
	if (segment)
		segment_moves(segment);
	else if (comes(c)) /* it may have to leave again */
		d->next_out = d->oldest;
	else
		c->left = 0;
	unchanged = segment && segment->calls == gate_submitted();
	lock_give(&swap_lock);
	if (!segment)
		return false;
	if (unchanged) {
		c->left -= segment->size < c->left ? segment->size : c->left;
		went(segment, segment->copy ? SEGMENT_AWAY : SEGMENT_ABSENT);
		return true;
	}
	answer = full(c, segment->size) ? ARENA_NOT_YET : room_for(segment);
	if (answer == ARENA_NOT_YET) {
		put_back(segment, &d->next_out);
		return false;
	}
	if (answer == ARENA_NONE)
		stays(segment, no_copy(c));
	else
		copy_out(c, segment);
	return true;
}

/* -- in --------------------------------------------------------------------------- */

static bool lacks(const struct segment *segment)
{
	return !segment->moving && (segment->state == SEGMENT_AWAY ||
	                            (segment->state == SEGMENT_ABSENT && swap_now.mode == RESTORE));
}

/* The newest that is not there and those before it that may come with it: how many, and
 * where it goes on. The lock is held. */
static unsigned int next_in(struct swap_device *d, uint64_t room, struct segment *some[AT_ONCE])
{
	struct segment *s = d->next_in ? d->next_in : d->newest;
	unsigned int n = 0;

	while (s && !lacks(s))
		s = s->older;
	d->next_in = s;
	while (s && n < AT_ONCE && lacks(s) && s->size <= room) {
		room -= s->size;
		some[n++] = s;
		s = segments_join(s) ? s->older : NULL;
	}
	return n;
}

/* What may be brought now: at most a piece at a time. What was let go a moment ago
 * has to be wiped by the driver before another process can have it, and who asks too
 * early waits for much longer than that takes: so one that makes room has a piece's
 * start. When no more room appears, or it goes up and down for others' doing, it is
 * tried nevertheless. */
static uint64_t room_for_more(struct copier *c)
{
	uint64_t piece = swap_devices[c->device].piece, now = now_ns();
	size_t room, total;

	if (c->in_flight > piece || c->n > SWAP_DEPTH / 2)
		return 0;
	if (REAL(cuMemGetInfo_v2)(&room, &total))
		return piece;
	if (room != c->room)
		c->room_at = now;
	c->room = room;
	if (room >= 2 * piece || now - c->room_at >= CLEAN_NS || now - c->came_at >= PATIENCE_NS)
		return piece;
	return room > piece ? room - piece : 0;
}

static void copy_in(struct copier *c, struct segment *segment)
{
	CUresult result = copy(c, segment, false);

	if (!result)
		result = push(c, segment, false);
	if (!result) {
		swap_now.moved.copied_in += segment->size;
		return;
	}
	REAL(cuStreamSynchronize)(c->stream);
	swap_give_up(result);
	went(segment, SEGMENT_AWAY);
}

/* Room on the device for some that lack it: how many. */
static unsigned int bring_some(struct copier *c, uint64_t room, struct segment *some[AT_ONCE],
                               CUresult *result)
{
	struct swap_device *d = &swap_devices[c->device];
	struct segment *first = NULL;
	unsigned int n = 0;

	lock_take(&swap_lock);
	if (d->missing > c->n) {
		n = next_in(d, room, some);
		first = d->next_in;
	}
	if (!first || first->size > c->left)
		c->left = 0; /* nothing is away, or no whole one was meant to come */
	if (n)
		n = segments_bring(some[0], n, result);
	if (n)
		d->next_in = some[n - 1]->older;
	for (unsigned int i = 0; i < n; i++) {
		segment_moves(some[i]);
		c->left -= some[i]->size < c->left ? some[i]->size : c->left;
	}
	lock_give(&swap_lock);
	return n;
}

/* False: nothing more now. */
static bool restore_some(struct copier *c)
{
	struct segment *some[AT_ONCE];
	CUresult result = CUDA_SUCCESS;
	uint64_t room = room_for_more(c);
	unsigned int n;

	if (!room)
		return false;
	if (swap_now.mode == PRELOAD && room > c->left)
		room = c->left;
	n = bring_some(c, room, some, &result);
	for (unsigned int i = 0; i < n; i++) {
		if (some[i]->state == SEGMENT_AWAY)
			copy_in(c, some[i]);
		else
			came(some[i]);
	}
	if (n) {
		c->came_at = now_ns();
		swap_now.pause_ns = SWAP_PAUSE_NS / 2; /* doubled after each step without room */
	}
	if (result && result != CUDA_ERROR_OUT_OF_MEMORY)
		swap_give_up(result);
	return n && !result;
}

/* -- steps ---------------------------------------------------------------------- */

/* How many have been copied, from the first on. */
static void look(struct copier *c)
{
	while (c->copied < c->n) {
		struct move *move = &c->ring[(c->first + c->copied) % SWAP_DEPTH];

		move->result = REAL(cuEventQuery)(move->event);
		if (move->result == CUDA_ERROR_NOT_READY)
			return;
		c->copied++;
		c->arrived += move->segment->size;
	}
}

static void settle_one(const struct move *move)
{
	if (move->out && move->result)
		stays(move->segment, "it cannot be copied");
	else if (move->out && swap_now.mode == RESTORE)
		kept(move->segment);
	else if (move->out)
		went(move->segment, SEGMENT_AWAY);
	else if (!move->result)
		came(move->segment);
	else
		went(move->segment, SEGMENT_AWAY);
	if (move->result && !move->out)
		swap_give_up(move->result);
}

/* What leaves is let go by the piece: each time it is wiped, which slows the copies
 * of others for a moment however much it is. */
static void settle(struct copier *c)
{
	look(c);
	if (swap_now.mode == EVICT && c->copied < c->n &&
	    c->arrived < swap_devices[c->device].piece)
		return;
	for (; c->copied; c->copied--, c->n--) {
		struct move move = c->ring[c->first];

		c->first = (c->first + 1) % SWAP_DEPTH;
		c->in_flight -= move.segment->size;
		c->arrived -= move.segment->size;
		settle_one(&move);
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
		all_stay(c);
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
	for (int i = 0; i < AT_ONCE && goes_on && has_more(c); i++)
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
	arena_context_ends(context);
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
