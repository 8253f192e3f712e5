/* clean_check.c: finds segments that still equal their copies. */
#include "memory/swap/clean_check.h"

#include "base/debug.h"
#include "base/fork.h"
#include "base/locks.h"
#include "channels/channels.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/swap/blocks.h"
#include "memory/swap/devices.h"
#include "memory/swap/fingerprinter.h"
#include "memory/swap/segments.h"
#include "tenant/tenant.h"

#define SEGMENTS_AT_ONCE 128
/* Pieces that are checked together. Copying them takes much longer than checking them. */
#define PIECES_AT_ONCE 4
#define MOST_SKIPS 64 /* evictions without a check */

/* The segments of a device that are being checked now. */
static struct check {
	struct fingerprinter fingerprinter;
	struct {
		struct segment *segment;
		size_t first; /* for fingerprinter_read() */
	} segments[SEGMENTS_AT_ONCE];
	unsigned int n;
	unsigned long began_at; /* gate_submitted() when the check began */
} checks[MAX_DEVICES];

/* Of this process. From GL_CLEAN_DRIVER on there are no fingerprints any more. */
static _Atomic(enum gl_clean) state;

/* -- one segment; the caller holds swap_lock, or is moving the segment ------------------------ */

static bool checked_now(const struct segment *s)
{
	return s->clean.checked_at == gate_submitted();
}

bool segment_is_clean(const struct segment *s)
{
	return s->copy && s->clean.copy_known && checked_now(s) &&
	       fingerprints_equal(s->clean.copy_print, s->clean.device_print);
}

/* May a kernel of the device read the segment? Of memory that the program maps itself the program
 * decides which devices have access. */
static bool readable(const struct segment *s)
{
	return !s->block->prop || s->block->access >> s->block->device & 1;
}

static bool needs_check(const struct segment *s)
{
	return s->state == SEGMENT_RESIDENT && !s->moving && !s->fixed && !s->clean.skips &&
	       s->unchanged_at != gate_submitted() && !checked_now(s) && readable(s) &&
	       s->size % FINGERPRINT_TILE == 0;
}

/* The segment had this fingerprint at that gate_submitted(). times_changed goes 0, 1, 2, 8, 32
 * while checks in a row find that the segment has changed. */
static void set_fingerprint(struct segment *s, struct fingerprint fingerprint,
                            unsigned long checked_at)
{
	struct clean_state *clean = &s->clean;

	clean->device_print = fingerprint;
	clean->checked_at = checked_at;
	if (!clean->copy_known || !s->copy)
		return;
	if (fingerprints_equal(clean->copy_print, fingerprint))
		clean->times_changed = 0;
	else if (clean->times_changed < 2)
		clean->times_changed++;
	else if (clean->times_changed < MOST_SKIPS / 2)
		clean->times_changed *= 4;
}

/* Until the copy is complete its bytes have no known fingerprint. */
void segment_copy_begins(struct segment *s)
{
	struct clean_state *clean = &s->clean;

	lock_take(&swap_lock);
	if (clean->skips)
		clean->skips--;
	else if (checked_now(s) && clean->copy_known)
		clean->skips = clean->times_changed < 2 ? 0 : 2 * clean->times_changed;
	clean->copy_known = false;
	lock_give(&swap_lock);
}

/* Nothing was submitted during the copy, so the device's fingerprint is that of the copied bytes.
 */
void segment_copy_ended(struct segment *s)
{
	lock_take(&swap_lock);
	s->clean.copy_print = s->clean.device_print;
	s->clean.copy_known = checked_now(s);
	lock_give(&swap_lock);
}

enum gl_clean clean_status(void)
{
	return tenant_cleans() ? atomic_load(&state) : GL_CLEAN_SITE;
}

static bool given_up(void)
{
	return atomic_load(&state) >= GL_CLEAN_DRIVER;
}

/* -- the segments of one device ---------------------------------------------------------------- */

static void give_up(const struct copier *c, CUresult result)
{
	debug("clean memory is copied as well from now on: the fingerprints of device %d failed "
	      "(CUDA error %d)",
	      c->device, (int)result);
	atomic_store(&state, GL_CLEAN_DRIVER);
}

/* The check of a segment has ended. fingerprint NULL: it has failed. */
static void end_check(struct segment *segment, const struct fingerprint *fingerprint,
                      unsigned long began_at)
{
	struct block *ended;

	lock_take(&swap_lock);
	if (fingerprint)
		set_fingerprint(segment, *fingerprint, began_at);
	ended = segment_end_move(segment);
	lock_give(&swap_lock);
	if (ended)
		block_end(ended);
}

bool clean_check_finish(struct copier *c)
{
	struct check *check = &checks[c->device];
	CUresult result = check->n ? fingerprinter_query(&check->fingerprinter) : CUDA_SUCCESS;

	if (result == CUDA_ERROR_NOT_READY)
		return false;
	if (result)
		give_up(c, result);
	for (unsigned int i = 0; i < check->n; i++) {
		struct segment *s = check->segments[i].segment;
		struct fingerprint found = {0, 0};

		if (!result)
			found = fingerprinter_read(&check->fingerprinter, check->segments[i].first,
			                           s->size);
		end_check(s, result ? NULL : &found, check->began_at);
	}
	check->n = 0;
	return true;
}

/* The caller holds swap_lock. Chooses segments that need a check among those that are evicted next.
 * While the chosen ones are copied, later ones are checked. */
static void choose_segments(const struct copier *c, struct check *check)
{
	uint64_t most = PIECES_AT_ONCE * swap_devices[c->device].piece;
	uint64_t left = c->bytes_left < most ? c->bytes_left : most;
	size_t values = 0;

	for (struct segment *s = swap_devices[c->device].evict_cursor; s && left; s = s->newer) {
		size_t n = fingerprint_stretches(s->size / FINGERPRINT_TILE);

		if (s->state != SEGMENT_RESIDENT || s->moving || s->fixed)
			continue;
		left -= s->size < left ? s->size : left;
		if (!needs_check(s))
			continue;
		if (check->n == SEGMENTS_AT_ONCE || values + n > FINGERPRINTER_VALUES)
			return;
		values += n;
		segment_begin_move(s);
		check->segments[check->n++].segment = s;
	}
}

static CUresult submit_all(struct check *check)
{
	CUresult result = CUDA_SUCCESS;

	fingerprinter_begin_batch(&check->fingerprinter);
	for (unsigned int i = 0; i < check->n && !result; i++) {
		const struct segment *s = check->segments[i].segment;

		result = fingerprinter_submit(&check->fingerprinter, s->base, s->size,
		                              &check->segments[i].first);
	}
	return result ? result : fingerprinter_end_batch(&check->fingerprinter);
}

/* The caller holds swap_lock. Does the segment that is evicted next need a check? */
static bool next_needs_check(const struct copier *c)
{
	const struct segment *s = swap_devices[c->device].evict_cursor;

	while (s && (s->state != SEGMENT_RESIDENT || s->moving || s->fixed))
		s = s->newer;
	return s && needs_check(s);
}

static void begin(const struct copier *c, struct check *check)
{
	CUresult result;

	check->began_at = gate_submitted();
	lock_take(&swap_lock);
	choose_segments(c, check);
	lock_give(&swap_lock);
	if (!check->n)
		return;
	result = submit_all(check);
	if (!result)
		return;
	give_up(c, result);
	REAL(cuStreamSynchronize)(check->fingerprinter.stream);
	for (unsigned int i = 0; i < check->n; i++)
		end_check(check->segments[i].segment, NULL, 0);
	check->n = 0;
}

bool clean_check_before_evicting(struct copier *c)
{
	struct check *check = &checks[c->device];
	bool needed;

	if (!clean_check_finish(c))
		return true;
	/* No kernel of ours would run while those of the program are stopped. */
	if (given_up() || !tenant_cleans() || channels_stop_phase() != STOP_NONE)
		return false;
	lock_take(&swap_lock);
	needed = next_needs_check(c);
	lock_give(&swap_lock);
	if (!needed || !fingerprinter_prepare(&check->fingerprinter)) {
		if (check->fingerprinter.state == FINGERPRINTER_WRONG)
			atomic_store(&state, check->fingerprinter.fault);
		return false;
	}
	atomic_store(&state, GL_CLEAN_ON);
	begin(c, check);
	return check->n;
}

void clean_check_end(struct copier *c)
{
	struct check *check = &checks[c->device];

	if (check->n)
		REAL(cuStreamSynchronize)(check->fingerprinter.stream);
	clean_check_finish(c);
	fingerprinter_end(&check->fingerprinter);
}

static void in_child(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		checks[d] = (struct check){0};
	atomic_store(&state, GL_CLEAN_UNKNOWN);
}
FORK_WATCH(in_child);
