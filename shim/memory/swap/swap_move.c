/* swap_move.c: moving the segments of a device to the host and back.
 *
 * A stream of our own has a few copies in flight, so that the next segment is
 * mapped, or the one before unmapped, while bytes move; where one process evicts
 * and another restores, each piece that leaves makes room for one that comes.
 */
#include "memory/swap/swap.h"

#define OUT_PIECES 3              /* of a device, that leave at once */
#define SLICE (UINT64_C(4) << 20) /* of a copy to the host */
#define AT_ONCE 64                /* segments that are begun with in a step */
#define PATIENCE_NS (UINT64_C(50) * 1000000)
#define CLEAN_NS (UINT64_C(3) * 1000000) /* until memory that was let go can be had */

struct mover movers[MAX_DEVICES];
struct swap_now swap_now;

static bool complained;

static bool prepare(struct mover *m, CUcontext context)
{
	if (m->context)
		return m->context == context;
	if (REAL(cuStreamCreate)(&m->stream, CU_STREAM_NON_BLOCKING))
		return false;
	m->context = context;
	return true;
}

static bool full(const struct mover *m, size_t size)
{
	return m->n == SWAP_DEPTH ||
	       (m->n && m->in_flight + size > OUT_PIECES * swap_devices[m->device].piece);
}

/* A copy has been put on the stream; it has happened when its event has. */
static CUresult push(struct mover *m, struct segment *segment, bool out)
{
	struct move *move = &m->ring[(m->first + m->n) % SWAP_DEPTH];

	if (!move->event)
		TRY(REAL(cuEventCreate)(&move->event, CU_EVENT_DISABLE_TIMING));
	TRY(REAL(cuEventRecord)(move->event, m->stream));
	move->segment = segment;
	move->out = out;
	m->n++;
	m->in_flight += segment->size;
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
	client_memory_changed();
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
void mover_give_up(CUresult error)
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
static CUresult copy(struct mover *m, struct segment *segment, bool out)
{
	CUdeviceptr at = segment->base;

	arena_pin(segment->copy);
	for (unsigned int i = 0; i < segment->copy->n; i++) {
		struct part part = segment->copy->parts[i];

		for (size_t done = 0, n; done < part.size; done += n) {
			n = out && part.size - done > SLICE ? SLICE : part.size - done;
			TRY(out ? DRIVER(cuMemcpyDtoHAsync_v2)(part.at + done, at, n, m->stream)
			        : DRIVER(cuMemcpyHtoDAsync_v2)(at, part.at + done, n, m->stream));
			at += n;
		}
	}
	return CUDA_SUCCESS;
}

static void copy_out(struct mover *m, struct segment *segment)
{
	CUresult result = copy(m, segment, true);

	if (!result)
		result = push(m, segment, true);
	if (result) {
		REAL(cuStreamSynchronize)(m->stream);
		stays(segment, "it cannot be copied");
		return;
	}
	swap_now.moved.copied_out += segment->size;
	m->left -= segment->size < m->left ? segment->size : m->left;
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

static const char *no_copy(const struct mover *m)
{
	CUresult status = REAL(cuStreamQuery)(m->stream);

	return status && status != CUDA_ERROR_NOT_READY ? "the context is broken"
	                                                : "there is no host memory for a copy "
	                                                  "(a larger --mem gives more)";
}

/* Without a stream nothing can be copied. */
static void all_stay(struct mover *m)
{
	complain("no stream for copies: memory stays on device %d", m->device);
	m->left = 0;
	lock_take(&swap_lock);
	for (struct segment *s = swap_devices[m->device].oldest; s; s = s->newer)
		if (s->state == SEGMENT_RESIDENT && !s->moving)
			segment_fix(s, true);
	lock_give(&swap_lock);
	client_memory_changed();
}

/* Something is still on its way in. */
static bool comes(const struct mover *m)
{
	for (unsigned int i = 0; i < m->n; i++)
		if (!m->ring[(m->first + i) % SWAP_DEPTH].out)
			return true;
	return false;
}

/* False: nothing more now. Without a change since it came it needs no copy: the
 * gate is shut and empty, so what has been submitted is known exactly. */
static bool evict_one(struct mover *m)
{
	struct swap_device *d = &swap_devices[m->device];
	enum arena_answer answer;
	struct segment *segment;
	bool unchanged;

	lock_take(&swap_lock);
	segment = next_out(d);
	if (segment)
		segment_moves(segment);
	else if (comes(m)) /* it may have to leave again */
		d->next_out = d->oldest;
	else
		m->left = 0;
	unchanged = segment && segment->calls == gate_submitted();
	lock_give(&swap_lock);
	if (!segment)
		return false;
	if (unchanged) {
		m->left -= segment->size < m->left ? segment->size : m->left;
		went(segment, segment->copy ? SEGMENT_AWAY : SEGMENT_ABSENT);
		return true;
	}
	answer = full(m, segment->size) ? ARENA_NOT_YET : room_for(segment);
	if (answer == ARENA_NOT_YET) {
		put_back(segment, &d->next_out);
		return false;
	}
	if (answer == ARENA_NONE)
		stays(segment, no_copy(m));
	else
		copy_out(m, segment);
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
static uint64_t room_for_more(struct mover *m)
{
	uint64_t piece = swap_devices[m->device].piece, now = now_ns();
	size_t room, total;

	if (m->in_flight > piece || m->n > SWAP_DEPTH / 2)
		return 0;
	if (REAL(cuMemGetInfo_v2)(&room, &total))
		return piece;
	if (room != m->room)
		m->room_at = now;
	m->room = room;
	if (room >= 2 * piece || now - m->room_at >= CLEAN_NS || now - m->came_at >= PATIENCE_NS)
		return piece;
	return room > piece ? room - piece : 0;
}

static void copy_in(struct mover *m, struct segment *segment)
{
	CUresult result = copy(m, segment, false);

	if (!result)
		result = push(m, segment, false);
	if (!result) {
		swap_now.moved.copied_in += segment->size;
		return;
	}
	REAL(cuStreamSynchronize)(m->stream);
	mover_give_up(result);
	went(segment, SEGMENT_AWAY);
}

/* Room on the device for some that lack it: how many. */
static unsigned int bring_some(struct mover *m, uint64_t room, struct segment *some[AT_ONCE],
                               CUresult *result)
{
	struct swap_device *d = &swap_devices[m->device];
	struct segment *first = NULL;
	unsigned int n = 0;

	lock_take(&swap_lock);
	if (d->missing > m->n) {
		n = next_in(d, room, some);
		first = d->next_in;
	}
	if (!first || first->size > m->left)
		m->left = 0; /* nothing is away, or no whole one was meant to come */
	if (n)
		n = segments_bring(some[0], n, result);
	if (n)
		d->next_in = some[n - 1]->older;
	for (unsigned int i = 0; i < n; i++) {
		segment_moves(some[i]);
		m->left -= some[i]->size < m->left ? some[i]->size : m->left;
	}
	lock_give(&swap_lock);
	return n;
}

/* False: nothing more now. */
static bool restore_some(struct mover *m)
{
	struct segment *some[AT_ONCE];
	CUresult result = CUDA_SUCCESS;
	uint64_t room = room_for_more(m);
	unsigned int n;

	if (!room)
		return false;
	if (swap_now.mode == PRELOAD && room > m->left)
		room = m->left;
	n = bring_some(m, room, some, &result);
	for (unsigned int i = 0; i < n; i++) {
		if (some[i]->state == SEGMENT_AWAY)
			copy_in(m, some[i]);
		else
			came(some[i]);
	}
	if (n) {
		m->came_at = now_ns();
		swap_now.pause_ns = SWAP_PAUSE_NS / 2; /* doubled after each step without room */
	}
	if (result && result != CUDA_ERROR_OUT_OF_MEMORY)
		mover_give_up(result);
	return n && !result;
}

/* -- steps ---------------------------------------------------------------------- */

/* How many have been copied, from the first on. */
static void look(struct mover *m)
{
	while (m->copied < m->n) {
		struct move *move = &m->ring[(m->first + m->copied) % SWAP_DEPTH];

		move->result = REAL(cuEventQuery)(move->event);
		if (move->result == CUDA_ERROR_NOT_READY)
			return;
		m->copied++;
		m->arrived += move->segment->size;
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
		mover_give_up(move->result);
}

/* What leaves is let go by the piece: each time it is wiped, which slows the copies
 * of others for a moment however much it is. */
static void settle(struct mover *m)
{
	look(m);
	if (swap_now.mode == EVICT && m->copied < m->n &&
	    m->arrived < swap_devices[m->device].piece)
		return;
	for (; m->copied; m->copied--, m->n--) {
		struct move move = m->ring[m->first];

		m->first = (m->first + 1) % SWAP_DEPTH;
		m->in_flight -= move.segment->size;
		m->arrived -= move.segment->size;
		settle_one(&move);
	}
}

static bool has_more(const struct mover *m)
{
	switch (swap_now.mode) {
	case RESTORE:
		return !swap_now.gave_up;
	case PRELOAD:
		return m->left && !swap_now.gave_up;
	case EVICT:
		return m->left;
	default:
		return false;
	}
}

static void cannot(struct mover *m)
{
	if (swap_now.mode == EVICT)
		all_stay(m);
	else
		mover_give_up(CUDA_ERROR_INVALID_CONTEXT);
}

void mover_step(CUcontext context, void *argument)
{
	struct mover *m = argument;
	bool goes_on = true;

	settle(m);
	if (has_more(m) && !prepare(m, context))
		cannot(m);
	for (int i = 0; i < AT_ONCE && goes_on && has_more(m); i++)
		goes_on = swap_now.mode == EVICT ? evict_one(m) : restore_some(m);
	m->busy = m->n || (swap_now.mode != RESTORE && has_more(m));
}

/* They go with the context; what is left to do stays. */
static void end_stream(struct mover *m)
{
	REAL(cuStreamSynchronize)(m->stream);
	settle(m);
	for (int i = 0; i < SWAP_DEPTH; i++) {
		if (m->ring[i].event)
			REAL(cuEventDestroy_v2)(m->ring[i].event);
		m->ring[i].event = NULL;
	}
	REAL(cuStreamDestroy_v2)(m->stream);
	m->context = NULL;
}

/* A context ends, in a thread of the program; its lock is held. */
void swap_context_ends(CUcontext context)
{
	CUstreamCaptureMode mode_before;
	CUcontext old;

	if (!swap_used() || !context || REAL(cuCtxPushCurrent_v2)(context))
		return;
	mode_before = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	for (int d = 0; d < MAX_DEVICES; d++)
		if (movers[d].context == context)
			end_stream(&movers[d]);
	arena_context_ends(context);
	captures_mode(mode_before);
	REAL(cuCtxPopCurrent_v2)(&old);
}

void movers_after_fork(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		movers[d] = (struct mover){0};
	swap_now = (struct swap_now){0};
}
