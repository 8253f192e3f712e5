/* rest.c: what of the chunks can be unregistered while a job moves, and when. */
#include "memory/swap/rest.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/locks.h"
#include "memory/store/chunk_pages.h"
#include "memory/store/chunks.h"
#include "memory/swap/carrier.h"
#include "memory/swap/lane.h"
#include "work/captures.h"
#include "work/contexts.h"

/* From a look that has found nothing to the next one: each passes over all segments. */
#define LOOK_NS (UINT64_C(1) * 1000000)

/* Used by the client thread only. */
static bool rests, more;
static unsigned int unpinned; /* chunks, since the last time that nothing was left to unregister */
static uint64_t looked_at;

/* -- the caller holds swap_lock and chunks_lock --------------------------------------------- */

static void need(const struct copy *copy)
{
	for (unsigned int i = 0; copy && i < copy->n; i++) {
		const struct part *part = &copy->parts[i];
		struct chunk *chunk = chunk_of(part->at);

		if (chunk)
			chunk->needed |= 1u << chunk_slice_of(chunk, part->at);
	}
}

/* May bytes of a segment still be copied to the host? */
static bool may_leave(const struct segment *s)
{
	return s->moving || (s->state == SEGMENT_RESIDENT && !carrier_takes(s));
}

/* Notes the slices to which bytes may still be copied. Returns true if copies may be made that need
 * units which are free. */
static bool note_needed(void)
{
	bool any = false;

	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
		chunk->needed = 0;
	for_each_lane(lane) {
		for (const struct segment *s = lane->oldest; s; s = s->newer) {
			if (!may_leave(s))
				continue;
			need(s->copy);
			any |= !s->copy && !s->fixed && !s->moving;
		}
	}
	return any;
}

/* The slices, a bit for each. */
static unsigned int may_rest(const struct chunk *chunk, bool free_units_needed)
{
	unsigned int pinned = 0;

	for (int slice = 0; slice < CHUNK_SLICES; slice++)
		pinned |= chunk->contexts[slice] ? 1u << slice : 0;
	return free_units_needed && chunk->n_free ? 0 : pinned & ~chunk->needed;
}

static struct chunk *find(unsigned int *slices)
{
	bool free_units_needed = note_needed();
	struct chunk *chunk = chunks;

	while (chunk && !(*slices = may_rest(chunk, free_units_needed)))
		chunk = chunk->next;
	return chunk;
}

/* -- the client thread ------------------------------------------------------------------------ */

/* One chunk at a time, since it takes some ms: the client thread hears the daemon before the next.
 */
static void rest_one(CUcontext context, void *found)
{
	unsigned int slices = 0;
	struct chunk *chunk;

	(void)context;
	lock_take(&swap_lock);
	lock_take(&chunks_lock);
	chunk = find(&slices);
	lock_give(&swap_lock);
	if (chunk)
		chunk_unpin(chunk, slices);
	lock_give(&chunks_lock);
	unpinned += chunk != NULL;
	*(bool *)found = chunk;
}

static bool any_lane(enum lane_mode mode)
{
	for_each_lane(lane)
		if (lane->asked && lane->mode == mode)
			return true;
	return false;
}

static bool copying(void)
{
	for_each_lane(lane)
		if (lane->copier.n)
			return true;
	return false;
}

void chunks_rest(bool rest)
{
	rests = more = rest;
	looked_at = 0;
}

bool chunks_rest_step(void)
{
	CUstreamCaptureMode mode;
	bool tried = false;

	if (!rests || any_lane(LANE_RESTORING) || any_lane(LANE_PRELOADING))
		return false;
	more |= any_lane(LANE_EVICTING);
	if (copying() || !more || now_ns() - looked_at < LOOK_NS)
		return more;
	more = false;
	mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	for_each_lane(lane)
		if (lane->asked && !tried)
			tried = contexts_with(lane->device, NULL, rest_one, &more);
	captures_mode(mode);
	looked_at = more ? 0 : now_ns();
	if (!more && unpinned) {
		debug("host memory of %u chunks is unregistered", unpinned);
		unpinned = 0;
	}
	return more;
}
