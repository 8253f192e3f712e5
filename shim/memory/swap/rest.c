/* rest.c: which chunks can be unregistered while a job moves, and when. */
#include "memory/swap/rest.h"

#include "base/clock.h"
#include "base/locks.h"
#include "memory/swap/carrier.h"
#include "memory/swap/chunk_pages.h"
#include "memory/swap/chunks.h"
#include "memory/swap/lane.h"
#include "work/captures.h"
#include "work/contexts.h"

#define LOOK_NS (UINT64_C(1) * 1000000) /* between two looks: each passes over all segments */

/* Used by the client thread only. */
static bool rests, more;
static uint64_t looked_at;

/* -- the caller holds swap_lock and chunks_lock --------------------------------------------- */

static void need(const struct copy *copy)
{
	for (unsigned int i = 0; copy && i < copy->n; i++) {
		struct chunk *chunk = chunk_of(copy->parts[i].at);

		if (chunk)
			chunk->needed = true;
	}
}

/* Notes the chunks to which bytes may still be copied, or from which they are just being copied.
 * Returns true if copies may be made that need units which are free. */
static bool note_needed(void)
{
	bool any = false;

	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
		chunk->needed = false;
	for_each_lane(lane) {
		for (const struct segment *s = lane->oldest; s; s = s->newer) {
			if ((s->state != SEGMENT_RESIDENT && !s->moving) || carrier_takes(s))
				continue;
			need(s->copy);
			any |= s->moving || !s->fixed;
		}
	}
	return any;
}

static bool may_rest(const struct chunk *chunk, bool free_units_needed)
{
	bool pinned = false;

	for (int slice = 0; slice < CHUNK_SLICES; slice++)
		pinned |= chunk->contexts[slice] != NULL;
	return pinned && !chunk->needed && !(free_units_needed && chunk->n_free);
}

static struct chunk *find(void)
{
	bool free_units_needed = note_needed();
	struct chunk *chunk = chunks;

	while (chunk && !may_rest(chunk, free_units_needed))
		chunk = chunk->next;
	return chunk;
}

/* -- the client thread ------------------------------------------------------------------------ */

/* One chunk at a time, since it takes some ms: the lanes' copies go on meanwhile, and more of them
 * are begun before the next one. */
static void rest_one(CUcontext context, void *found)
{
	struct chunk *chunk;

	(void)context;
	lock_take(&swap_lock);
	lock_take(&chunks_lock);
	chunk = find();
	lock_give(&swap_lock);
	if (chunk)
		chunk_unpin(chunk);
	lock_give(&chunks_lock);
	*(bool *)found = chunk;
}

static bool any_lane(enum lane_mode mode)
{
	for_each_lane(lane)
		if (lane->asked && lane->mode == mode)
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
	bool evicting = any_lane(LANE_EVICTING), tried = false;
	CUstreamCaptureMode mode;

	if (!rests || any_lane(LANE_RESTORING) || any_lane(LANE_PRELOADING))
		return false;
	more |= evicting;
	if (!more || now_ns() - looked_at < LOOK_NS)
		return more;
	more = false;
	mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	for_each_lane(lane)
		if (lane->asked && !tried)
			tried = contexts_with(lane->device, NULL, rest_one, &more);
	captures_mode(mode);
	looked_at = now_ns();
	more |= evicting; /* what it copies now will rest too, when it has ended */
	return more;
}
