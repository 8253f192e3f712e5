/* looks.c: which segments are what their copies are. */
#include "memory/swap/looks.h"

#include "base/debug.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/swap/blocks.h"
#include "memory/swap/devices.h"
#include "memory/swap/printer.h"
#include "memory/swap/segments.h"
#include "tenant/tenant.h"

#define LOOKS_AT_ONCE 128
#define LOOK_PIECES 4   /* at once: copying so many takes much longer than looking at them */
#define LONGEST_REST 64 /* evictions without a look */

static struct looks {
	struct printer printer;
	struct {
		struct segment *segment;
		size_t first; /* of its values */
	} under_way[LOOKS_AT_ONCE];
	unsigned int n;
	unsigned long calls; /* gate_submitted() when it began */
} looks[MAX_DEVICES];

/* In this process; from GL_CLEAN_DRIVER on fingerprints are wrong, or not to be had. */
static _Atomic(enum gl_clean) state;

/* -- one segment; callers hold swap_lock, or the segment moves -------------------------------- */

static bool looked_at(const struct segment *s)
{
	return s->look.calls == gate_submitted();
}

bool segment_clean(const struct segment *s)
{
	return s->copy && s->look.copy_known && looked_at(s) &&
	       fingerprints_equal(s->look.of_copy, s->look.of_device);
}

/* May a kernel of the device read it? The program says who reaches what it maps itself. */
static bool readable(const struct segment *s)
{
	return !s->block->prop || s->block->access >> s->block->device & 1;
}

static bool due(const struct segment *s)
{
	return s->state == SEGMENT_RESIDENT && !s->moving && !s->fixed && !s->look.rest &&
	       s->calls != gate_submitted() && !looked_at(s) && readable(s) &&
	       s->size % FINGERPRINT_TILE == 0;
}

static void found(struct segment *s, struct fingerprint fingerprint, unsigned long calls)
{
	bool changed =
	    s->copy && s->look.copy_known && !fingerprints_equal(s->look.of_copy, fingerprint);

	s->look.of_device = fingerprint;
	s->look.calls = calls;
	if (!s->look.copy_known || !s->copy)
		return;
	if (!changed)
		s->look.changes = 0;
	else if (s->look.changes < LONGEST_REST / 2)
		s->look.changes = s->look.changes < 2 ? s->look.changes + 1 : 4 * s->look.changes;
}

/* What the copy holds is known again when it is complete. */
void segment_copy_begins(struct segment *s)
{
	lock_take(&swap_lock);
	if (s->look.rest)
		s->look.rest--;
	else if (looked_at(s) && s->look.copy_known)
		s->look.rest = s->look.changes < 2 ? 0 : 2 * s->look.changes;
	s->look.copy_known = false;
	lock_give(&swap_lock);
}

/* Nobody submits anything while a segment moves, so the fingerprint is that of what was copied. */
void segment_copy_ended(struct segment *s)
{
	lock_take(&swap_lock);
	s->look.of_copy = s->look.of_device;
	s->look.copy_known = looked_at(s);
	lock_give(&swap_lock);
}

enum gl_clean looks_clean(void)
{
	return tenant_cleans() ? atomic_load(&state) : GL_CLEAN_SITE;
}

static bool given_up(void)
{
	return atomic_load(&state) >= GL_CLEAN_DRIVER;
}

/* -- several at once -------------------------------------------------------------------------- */

static void give_up(const struct copier *c, CUresult result)
{
	debug("error %d: no more fingerprints on device %d", (int)result, c->device);
	atomic_store(&state, GL_CLEAN_DRIVER);
}

static void look_over(struct segment *segment, struct fingerprint fingerprint, bool good,
                      unsigned long calls)
{
	struct block *ended;

	lock_take(&swap_lock);
	if (good)
		found(segment, fingerprint, calls);
	ended = segment_moved(segment);
	lock_give(&swap_lock);
	if (ended)
		block_end(ended);
}

bool looks_settle(struct copier *c)
{
	struct looks *l = &looks[c->device];
	CUresult result = l->n ? printer_query(&l->printer) : CUDA_SUCCESS;
	struct fingerprint none = {0, 0};

	if (result == CUDA_ERROR_NOT_READY)
		return false;
	if (result)
		give_up(c, result);
	for (unsigned int i = 0; i < l->n; i++) {
		struct segment *s = l->under_way[i].segment;

		look_over(s,
		          result ? none : printer_read(&l->printer, l->under_way[i].first, s->size),
		          !result, l->calls);
	}
	l->n = 0;
	return true;
}

/* Caller holds swap_lock. From the next one that leaves on, some of those that are to leave: while
 * they are copied the next ones are looked at. */
static void choose(const struct copier *c, struct looks *l)
{
	uint64_t some = LOOK_PIECES * swap_devices[c->device].piece;
	uint64_t left = c->left < some ? c->left : some;
	size_t values = 0;

	for (struct segment *s = swap_devices[c->device].next_out; s && left; s = s->newer) {
		size_t n = fingerprint_stretches(s->size / FINGERPRINT_TILE);

		if (s->state != SEGMENT_RESIDENT || s->moving || s->fixed)
			continue;
		left -= s->size < left ? s->size : left;
		if (!due(s))
			continue;
		if (l->n == LOOKS_AT_ONCE || values + n > PRINTER_VALUES)
			return;
		values += n;
		segment_moves(s);
		l->under_way[l->n++].segment = s;
	}
}

/* What has not been begun is read as an error. */
static CUresult print_all(struct looks *l)
{
	CUresult result = CUDA_SUCCESS;

	printer_begin_batch(&l->printer);
	for (unsigned int i = 0; i < l->n && !result; i++) {
		const struct segment *s = l->under_way[i].segment;

		result = printer_print(&l->printer, s->base, s->size, &l->under_way[i].first);
	}
	return result ? result : printer_end_batch(&l->printer);
}

/* Caller holds swap_lock. The next segment that can leave, which the cursor then points to. */
static bool next_is_due(const struct copier *c)
{
	struct swap_device *d = &swap_devices[c->device];
	const struct segment *s = d->next_out;

	while (s && (s->state != SEGMENT_RESIDENT || s->moving || s->fixed))
		s = s->newer;
	return s && due(s);
}

static void begin(const struct copier *c, struct looks *l)
{
	CUresult result;

	l->calls = gate_submitted();
	lock_take(&swap_lock);
	choose(c, l);
	lock_give(&swap_lock);
	if (!l->n)
		return;
	result = print_all(l);
	if (!result)
		return;
	give_up(c, result);
	REAL(cuStreamSynchronize)(l->printer.stream);
	for (unsigned int i = 0; i < l->n; i++)
		look_over(l->under_way[i].segment, (struct fingerprint){0, 0}, false, 0);
	l->n = 0;
}

bool looks_go_on(struct copier *c)
{
	struct looks *l = &looks[c->device];
	bool is_due;

	if (!looks_settle(c))
		return true;
	if (given_up() || !tenant_cleans())
		return false;
	lock_take(&swap_lock);
	is_due = next_is_due(c);
	lock_give(&swap_lock);
	if (!is_due || !printer_prepare(&l->printer)) {
		if (l->printer.state == PRINTER_WRONG)
			atomic_store(&state, l->printer.fault);
		return false;
	}
	atomic_store(&state, GL_CLEAN_ON);
	begin(c, l);
	return l->n;
}

void looks_end(struct copier *c)
{
	struct looks *l = &looks[c->device];

	if (l->n)
		REAL(cuStreamSynchronize)(l->printer.stream);
	looks_settle(c);
	printer_end(&l->printer);
}

static void in_child(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		looks[d] = (struct looks){0};
	atomic_store(&state, GL_CLEAN_UNKNOWN);
}
FORK_WATCH(in_child);
