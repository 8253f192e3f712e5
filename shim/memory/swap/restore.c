/* restore.c: segments that come back to a device, the newest first. */
#include "memory/swap/restore.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "memory/swap/copier.h"
#include "memory/swap/devices.h"
#include "memory/swap/segments.h"
#include "memory/swap/transfers.h"

#define PATIENCE_NS (UINT64_C(50) * 1000000)
#define CLEAN_NS (UINT64_C(3) * 1000000) /* until memory that was released can be had again */

static bool is_missing(const struct segment *segment)
{
	return !segment->moving && (segment->state == SEGMENT_AWAY ||
	                            (segment->state == SEGMENT_ABSENT && swap_now.mode == RESTORE));
}

/* Caller holds swap_lock. The newest segment that is missing, and older ones that one call can
 * map together with it. Returns how many. */
static unsigned int next_in(struct swap_device *d, uint64_t room,
                            struct segment *some[SWAP_AT_ONCE])
{
	struct segment *s = d->next_in ? d->next_in : d->newest;
	unsigned int n = 0;

	while (s && !is_missing(s))
		s = s->older;
	d->next_in = s;
	while (s && n < SWAP_AT_ONCE && is_missing(s) && s->size <= room) {
		room -= s->size;
		some[n++] = s;
		s = segments_join(s) ? s->older : NULL;
	}
	return n;
}

/* How many bytes may be brought back now: at most a piece. The driver wipes memory that was
 * released a moment ago before another process can have it, and a process that asks too early
 * waits for much longer than that takes. So one piece of free memory is left alone. When no
 * more room appears, or it changes because of other processes, it is tried nevertheless. */
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
	CUresult result = copier_copy(c, segment, false);

	if (!result)
		result = copier_push(c, segment, false);
	if (!result) {
		swap_now.moved.copied_in += segment->size;
		return;
	}
	REAL(cuStreamSynchronize)(c->stream);
	swap_give_up(result);
	segment_evicted(segment, SEGMENT_AWAY);
}

/* Makes physical memory for some segments that are missing. Returns how many. */
static unsigned int bring_some(struct copier *c, uint64_t room, struct segment *some[SWAP_AT_ONCE],
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
		c->left = 0; /* nothing is away, or no whole segment was meant to come */
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

bool restore_some(struct copier *c)
{
	struct segment *some[SWAP_AT_ONCE];
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
			segment_restored(some[i]);
	}
	if (n) {
		c->came_at = now_ns();
		swap_now.pause_ns = SWAP_PAUSE_NS / 2; /* doubled after each step without room */
	}
	if (result && result != CUDA_ERROR_OUT_OF_MEMORY)
		swap_give_up(result);
	return n && !result;
}
