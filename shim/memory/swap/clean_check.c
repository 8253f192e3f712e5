/* clean_check.c: finds segments that still equal their copies. */
#include "memory/swap/clean_check.h"

#include "base/debug.h"
#include "base/fork.h"
#include "channels/channels.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/swap/lane.h"
#include "memory/swap/moves.h"
#include "tenant/tenant.h"

/* Pieces that are checked together. Copying them takes much longer than checking them. */
#define PIECES_AT_ONCE 4
#define MOST_SKIPS 64 /* evictions without a check */

/* Of this process. From GL_CLEAN_DRIVER on there are no fingerprints any more. */
static _Atomic(enum gl_clean) state;

/* -- one segment; the caller holds swap_lock, or is moving the segment ------------------------ */

static bool checked_now(const struct segment *s)
{
	return s->clean.checked_at == gate_submitted();
}

/* May a kernel of the device read the segment? Of memory that the program maps itself the program
 * decides which devices have access. */
static bool readable(const struct segment *s)
{
	return !s->block->prop || s->block->access >> s->block->lane->device & 1;
}

/* One that may be evicted. */
static bool needs_check(const struct segment *s)
{
	return !s->block->lent && !s->clean.skips && s->unchanged_at != gate_submitted() &&
	       !checked_now(s) && readable(s) && s->size % FINGERPRINT_TILE == 0;
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

	if (clean->skips)
		clean->skips--;
	else if (checked_now(s) && clean->copy_known)
		clean->skips = clean->times_changed < 2 ? 0 : 2 * clean->times_changed;
	clean->copy_known = false;
}

/* Nothing was submitted during the copy, so the device's fingerprint is that of the copied bytes.
 */
void segment_copy_ended(struct segment *s)
{
	s->clean.copy_print = s->clean.device_print;
	s->clean.copy_known = checked_now(s);
}

enum gl_clean clean_status(void)
{
	return tenant_cleans() ? atomic_load(&state) : GL_CLEAN_SITE;
}

static bool given_up(void)
{
	return atomic_load(&state) >= GL_CLEAN_DRIVER;
}

/* -- the segments of one lane ---------------------------------------------------------------- */

static void give_up(const struct lane *lane, CUresult result)
{
	debug("clean memory is copied as well from now on: the fingerprints of device %d failed "
	      "(CUDA error %d)",
	      lane->device, (int)result);
	atomic_store(&state, GL_CLEAN_DRIVER);
}

/* The check of the segments has ended; good: their fingerprints are there. */
static void end_checks(struct check *check, bool good)
{
	for (unsigned int i = 0; i < check->n; i++) {
		struct segment *s = check->segments[i].segment;

		if (good)
			set_fingerprint(s,
			                fingerprinter_read(&check->fingerprinter,
			                                   check->segments[i].first, s->size),
			                check->began_at);
		move_end(s);
	}
	check->n = 0;
}

bool clean_check_finish(struct lane *lane)
{
	struct check *check = &lane->check;
	CUresult result = check->n ? fingerprinter_query(&check->fingerprinter) : CUDA_SUCCESS;

	if (result == CUDA_ERROR_NOT_READY)
		return false;
	if (result)
		give_up(lane, result);
	end_checks(check, !result);
	return true;
}

struct choice {
	struct check *check;
	uint64_t left; /* bytes */
	size_t values;
};

/* Begins to move the segment if it needs a check. Returns false once no more can be checked. */
static bool choose(struct segment *s, void *argument)
{
	struct choice *choice = argument;
	size_t n = fingerprint_stretches(s->size / FINGERPRINT_TILE);

	choice->left -= s->size < choice->left ? s->size : choice->left;
	if (!needs_check(s))
		return choice->left;
	if (choice->check->n == CHECKED_AT_ONCE || choice->values + n > FINGERPRINTER_VALUES)
		return false;
	choice->values += n;
	segment_begin_move(s);
	choice->check->segments[choice->check->n++].segment = s;
	return choice->left;
}

/* Chooses segments that need a check among those that are evicted next. While the chosen ones are
 * copied, later ones are checked. */
static void choose_segments(struct lane *lane)
{
	uint64_t most = PIECES_AT_ONCE * lane->piece;
	struct choice choice = {&lane->check, lane->bytes_left < most ? lane->bytes_left : most, 0};

	if (choice.left)
		moves_visit_next(lane, choose, &choice);
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

static bool ask_next(struct segment *s, void *needed)
{
	*(bool *)needed = needs_check(s);
	return false;
}

/* Does the segment that is evicted next need a check? */
static bool next_needs_check(struct lane *lane)
{
	bool needed = false;

	moves_visit_next(lane, ask_next, &needed);
	return needed;
}

static void begin(struct lane *lane)
{
	struct check *check = &lane->check;
	CUresult result;

	check->began_at = gate_submitted();
	choose_segments(lane);
	if (!check->n)
		return;
	result = submit_all(check);
	if (!result)
		return;
	give_up(lane, result);
	REAL(cuStreamSynchronize)(check->fingerprinter.stream);
	end_checks(check, false);
}

bool clean_check_before_evicting(struct lane *lane)
{
	struct fingerprinter *fingerprinter = &lane->check.fingerprinter;

	if (!clean_check_finish(lane))
		return true;
	/* No kernel of ours would run while those of the program are stopped. */
	if (given_up() || !tenant_cleans() || channels_stop_phase() != STOP_NONE)
		return false;
	if (!next_needs_check(lane) || !fingerprinter_prepare(fingerprinter)) {
		if (fingerprinter->state == FINGERPRINTER_WRONG)
			atomic_store(&state, fingerprinter->fault);
		return false;
	}
	atomic_store(&state, GL_CLEAN_ON);
	begin(lane);
	return lane->check.n;
}

void clean_check_end(struct lane *lane)
{
	if (lane->check.n)
		REAL(cuStreamSynchronize)(lane->check.fingerprinter.stream);
	clean_check_finish(lane);
	fingerprinter_end(&lane->check.fingerprinter);
}

static void in_child(void)
{
	atomic_store(&state, GL_CLEAN_UNKNOWN);
}
FORK_WATCH(in_child);
