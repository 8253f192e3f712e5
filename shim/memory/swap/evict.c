/* evict.c: evicts segments from a device, the oldest first. */
#include "memory/swap/evict.h"

#include "base/debug.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/changes.h"
#include "memory/swap/blocks.h"
#include "memory/swap/clean_check.h"
#include "memory/swap/copier.h"
#include "memory/swap/devices.h"
#include "memory/swap/segments.h"
#include "memory/swap/store.h"
#include "memory/swap/transfers.h"

#define PIECES_AT_ONCE 3 /* the most bytes that are being copied from a device, in pieces */

/* -- what shall be evicted ----------------------------------------------------------- */

/* Does the segment stay since it could not be copied? Shared memory stays in any case. */
static bool is_uncopied(const struct segment *segment)
{
	return segment->fixed && !segment->block->shared;
}

/* Bytes of the device that stay there for that reason; lacking: those without host memory. */
static uint64_t uncopied(const struct swap_device *d, bool lacking)
{
	uint64_t bytes = 0;

	for (struct segment *s = d->fixed ? d->oldest : NULL; s; s = s->newer)
		bytes += is_uncopied(s) && !(lacking && s->copy) ? s->size : 0;
	return bytes;
}

/* Lets as much of that leave as there is host memory for. */
static void unfix(const struct swap_device *d, uint64_t available)
{
	for (struct segment *s = d->fixed ? d->oldest : NULL; s; s = s->newer) {
		uint64_t needs = s->copy ? 0 : s->size;

		if (!is_uncopied(s) || needs > available)
			continue;
		available -= needs;
		segment_set_fixed(s, false);
	}
}

void evict_unfix(CUdevice device)
{
	struct swap_device *d = &swap_devices[device];
	uint64_t lacking = uncopied(d, true);

	unfix(d, lacking ? swap_store->grow(lacking) : 0);
}

uint64_t evict_unfix_ready(CUdevice device)
{
	struct swap_device *d = &swap_devices[device];
	uint64_t before, left;

	lock_take(&swap_lock);
	before = uncopied(d, false);
	lock_give(&swap_lock);
	if (!before || !copier_can_copy(device))
		return before;
	lock_take(&swap_lock);
	unfix(d, swap_store->ready());
	left = uncopied(d, false);
	lock_give(&swap_lock);
	if (left < before)
		memory_changed();
	return left;
}

uint64_t evict_copies_needed(CUdevice device, uint64_t bytes)
{
	uint64_t needed = 0;

	lock_take(&swap_lock);
	for (struct segment *s = swap_devices[device].oldest; s && bytes; s = s->newer) {
		if (s->state != SEGMENT_RESIDENT || s->block->shared)
			continue;
		if (!s->copy && s->unchanged_at != gate_submitted())
			needed += s->size;
		bytes -= s->size < bytes ? s->size : bytes;
	}
	lock_give(&swap_lock);
	return needed;
}

uint64_t evict_add(CUdevice device, uint64_t bytes)
{
	struct copier *c = &copiers[device];
	uint64_t copies = evict_copies_needed(device, bytes);

	lock_take(&swap_lock);
	evict_unfix(device);
	swap_devices[device].evict_cursor = swap_devices[device].oldest;
	lock_give(&swap_lock);
	c->bytes_left = bytes > UINT64_MAX - c->bytes_left ? UINT64_MAX : c->bytes_left + bytes;
	c->busy = true;
	return copies;
}

void evict_impossible(struct copier *c)
{
	transfer_complain(c->device, "the driver makes no stream for copies");
	c->bytes_left = 0;
	swap_progress.stays = true;
	lock_take(&swap_lock);
	for (struct segment *s = swap_devices[c->device].oldest; s; s = s->newer)
		if (s->state == SEGMENT_RESIDENT && !s->moving)
			segment_set_fixed(s, true);
	lock_give(&swap_lock);
	memory_changed();
}

/* -- host memory for a copy ------------------------------------------------------------ */

/* Gives up copies of resident segments that are not known to be current. known_ones: those whose
 * fingerprint is known, which may turn out to be current; else the others. */
static void drop_copies(bool known_ones)
{
	lock_take(&swap_lock);
	for (int d = 0; d < MAX_DEVICES; d++) {
		for (struct segment *s = swap_devices[d].oldest; s; s = s->newer) {
			if (!s->copy || s->state != SEGMENT_RESIDENT || s->moving ||
			    s->unchanged_at == gate_submitted() || segment_is_clean(s) ||
			    s->clean.copy_known != known_ones)
				continue;
			s->copy->store->give(s->copy);
			s->copy = NULL;
			s->clean.copy_known = false;
		}
	}
	lock_give(&swap_lock);
}

/* Sets segment->copy, unless it has one. If there is no host memory, copies that may be outdated
 * are given up for it. */
static enum store_answer take_copy(struct segment *segment)
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

/* The segment, for whose copy there is no host memory (unhosted) or which the driver does not copy,
 * stays until that is tried again, or for good if the context is broken. */
static void stay(const struct copier *c, struct segment *segment, bool unhosted)
{
	CUresult status = REAL(cuStreamQuery)(c->stream);
	bool broken = status && status != CUDA_ERROR_NOT_READY;

	lock_take(&swap_lock);
	segment->unhosted = unhosted && !broken;
	lock_give(&swap_lock);
	if (!broken)
		swap_progress.stays = true;
	transfer_impossible(segment, broken     ? "the context is broken"
	                             : unhosted ? "there is no host memory for a copy "
	                                          "(a larger --mem gives more)"
	                                        : "the driver cannot copy it");
}

/* -- one segment ------------------------------------------------------------------------- */

static bool ring_is_full(const struct copier *c, size_t size)
{
	return c->n == SWAP_DEPTH ||
	       (c->n && c->in_flight + size > PIECES_AT_ONCE * swap_devices[c->device].piece);
}

/* The caller holds swap_lock. Moves the cursor past the segment that it returns. */
static struct segment *next_evictable(struct swap_device *d)
{
	struct segment *s = d->evict_cursor;

	while (s && (s->state != SEGMENT_RESIDENT || s->moving || s->fixed))
		s = s->newer;
	d->evict_cursor = s ? s->newer : NULL;
	return s;
}

/* Nothing can be begun now; the segment is the next one again. */
static void put_back(struct segment *segment)
{
	struct block *ended;

	lock_take(&swap_lock);
	if (!segment->block->doomed)
		swap_devices[segment->block->device].evict_cursor = segment;
	ended = segment_end_move(segment);
	lock_give(&swap_lock);
	if (ended)
		block_end(ended);
}

static void subtract_evicted(struct copier *c, const struct segment *segment)
{
	c->bytes_left -= segment->size < c->bytes_left ? segment->size : c->bytes_left;
}

static void copy_out(struct copier *c, struct segment *segment)
{
	CUresult result;

	segment_copy_begins(segment);
	result = copier_copy(c, segment, true);
	if (!result)
		result = copier_record(c, segment, true);
	if (result) {
		REAL(cuStreamSynchronize)(c->stream);
		stay(c, segment, false);
		return;
	}
	swap_progress.moved.copied_to_host += segment->size;
	subtract_evicted(c, segment);
}

/* Is a segment still being restored, so that it may have to be evicted again? */
static bool some_being_restored(const struct copier *c)
{
	for (unsigned int i = 0; i < c->n; i++)
		if (!c->ring[(c->first + i) % SWAP_DEPTH].out)
			return true;
	return false;
}

/* Returns NULL if no segment can be evicted now. Else its move has begun; *unchanged: it needs no
 * new copy. That is so if nothing has been submitted since it became resident (the gate is shut and
 * empty, so the number is exact), or if its fingerprint equals its copy's. */
static struct segment *choose_segment(struct copier *c, bool *unchanged)
{
	struct swap_device *d = &swap_devices[c->device];
	struct segment *segment;

	lock_take(&swap_lock);
	segment = next_evictable(d);
	if (segment)
		segment_begin_move(segment);
	else if (some_being_restored(c))
		d->evict_cursor = d->oldest;
	else
		c->bytes_left = 0;
	*unchanged =
	    segment && (segment->unchanged_at == gate_submitted() || segment_is_clean(segment));
	lock_give(&swap_lock);
	return segment;
}

bool evict_one(struct copier *c)
{
	enum store_answer answer;
	struct segment *segment;
	bool unchanged;

	if (clean_check_before_evicting(c))
		return false;
	segment = choose_segment(c, &unchanged);
	if (!segment)
		return false;
	if (unchanged) {
		subtract_evicted(c, segment);
		c->evicted_clean += segment->size;
		transfer_evicted(segment, segment->copy ? SEGMENT_AWAY : SEGMENT_ABSENT);
		return true;
	}
	answer = ring_is_full(c, segment->size) ? STORE_LATER : take_copy(segment);
	if (answer == STORE_LATER) {
		put_back(segment);
		return false;
	}
	if (answer == STORE_NONE)
		stay(c, segment, true);
	else
		copy_out(c, segment);
	return true;
}
