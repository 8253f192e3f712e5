/* evict.c: segments that leave a device, the oldest first. */
#include "memory/swap/evict.h"

#include "base/debug.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/changes.h"
#include "memory/swap/blocks.h"
#include "memory/swap/copier.h"
#include "memory/swap/devices.h"
#include "memory/swap/looks.h"
#include "memory/swap/segments.h"
#include "memory/swap/store.h"
#include "memory/swap/transfers.h"

#define OUT_PIECES 3 /* that leave a device at once */

static bool full(const struct copier *c, size_t size)
{
	return c->n == SWAP_DEPTH ||
	       (c->n && c->in_flight + size > OUT_PIECES * swap_devices[c->device].piece);
}

/* Gives up the copies of segments that may have changed on the device since; first only those of
 * which nobody knows what they hold. */
static void drop_copies(bool known_ones)
{
	lock_take(&swap_lock);
	for (int d = 0; d < MAX_DEVICES; d++) {
		for (struct segment *s = swap_devices[d].oldest; s; s = s->newer) {
			if (!s->copy || s->state != SEGMENT_RESIDENT || s->moving ||
			    s->calls == gate_submitted() || segment_clean(s) ||
			    s->look.copy_known != known_ones)
				continue;
			s->copy->store->give(s->copy);
			s->copy = NULL;
			s->look.copy_known = false;
		}
	}
	lock_give(&swap_lock);
}

/* Caller holds swap_lock. The oldest segment that can leave. */
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

static void copy_out(struct copier *c, struct segment *segment)
{
	CUresult result;

	segment_copy_begins(segment);
	result = copier_copy(c, segment, true);
	if (!result)
		result = copier_push(c, segment, true);
	if (result) {
		REAL(cuStreamSynchronize)(c->stream);
		segment_stays(segment, "it cannot be copied");
		return;
	}
	swap_now.moved.copied_out += segment->size;
	c->left -= segment->size < c->left ? segment->size : c->left;
}

static enum store_answer room_for(struct segment *segment)
{
	enum store_answer answer = segment->copy ? STORE_READY : STORE_NONE;

	if (!segment->copy)
		answer = swap_store->take(segment->size, &segment->copy);
	for (int known = 0; known < 2 && answer == STORE_NONE; known++) {
		drop_copies(known);
		answer = swap_store->take(segment->size, &segment->copy);
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

void evict_nothing(struct copier *c)
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

/* Is a segment still on its way to the device? */
static bool some_arrive(const struct copier *c)
{
	for (unsigned int i = 0; i < c->n; i++)
		if (!c->ring[(c->first + i) % SWAP_DEPTH].out)
			return true;
	return false;
}

/* A segment that has not changed since it came back needs no new copy: the gate is shut and
 * empty, so it is known exactly what has been submitted; or the device itself finds that it is
 * what its copy is. */
bool evict_one(struct copier *c)
{
	struct swap_device *d = &swap_devices[c->device];
	enum store_answer answer;
	struct segment *segment;
	bool unchanged;

	if (looks_go_on(c))
		return false;
	lock_take(&swap_lock);
	segment = next_out(d);
	if (segment)
		segment_moves(segment);
	else if (some_arrive(c)) /* and may have to leave again */
		d->next_out = d->oldest;
	else
		c->left = 0;
	unchanged = segment && (segment->calls == gate_submitted() || segment_clean(segment));
	lock_give(&swap_lock);
	if (!segment)
		return false;
	if (unchanged) {
		c->left -= segment->size < c->left ? segment->size : c->left;
		c->left_clean += segment->size;
		segment_evicted(segment, segment->copy ? SEGMENT_AWAY : SEGMENT_ABSENT);
		return true;
	}
	answer = full(c, segment->size) ? STORE_LATER : room_for(segment);
	if (answer == STORE_LATER) {
		put_back(segment, &d->next_out);
		return false;
	}
	if (answer == STORE_NONE)
		segment_stays(segment, no_copy(c));
	else
		copy_out(c, segment);
	return true;
}
