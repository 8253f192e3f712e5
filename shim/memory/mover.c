/* mover.c: what the lease asks of memory, asked of each kind (kind.h). */
#include "memory/mover.h"

#include "base/clock.h"
#include "base/wire.h"
#include "memory/kinds.h"

/* Of the client thread alone. */
static struct {
	bool restores, refills;
	bool busy[N_MEMORY_KINDS]; /* after the last step */
	size_t row;                /* of the kind that is being restored */
	bool granted;              /* else only one call is to be made */
	struct gl_grant grant;
	uint64_t since;
	struct moved moved;
} now;

static const struct mover *mover_of(size_t row)
{
	return memory_kinds[row]->mover;
}

/* Of all kinds, or of those that came beside the program's work. */
static void measure(bool refill)
{
	now.moved = (struct moved){0};
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (mover_of(i) && (!refill || mover_of(i)->refill))
			now.moved.bytes += mover_of(i)->brought().bytes;
	now.moved.ns = now.moved.bytes ? now_ns() - now.since : 0;
}

/* -- restoring: one kind after the other, in the order of the table -------------------- */

static void restore_kind(void)
{
	if (now.row < N_MEMORY_KINDS && mover_of(now.row))
		mover_of(now.row)->restore(now.granted ? &now.grant : NULL);
}

static void restore(const struct gl_grant *grant)
{
	now.restores = true;
	now.refills = false;
	now.granted = grant;
	now.grant = grant ? *grant : (struct gl_grant){0};
	now.since = now_ns();
	now.row = 0;
	restore_kind();
}

static bool restored(void)
{
	while (now.row < N_MEMORY_KINDS) {
		if (mover_of(now.row) && !mover_of(now.row)->restored())
			return false;
		now.row++;
		restore_kind();
	}
	if (now.restores && now.granted)
		measure(false);
	now.restores = false;
	return true;
}

/* While memory is still being restored: of a kind whose turn has not come, so much then. */
static void refill_begun(void)
{
	for (size_t i = 0; i <= now.row && i < N_MEMORY_KINDS; i++)
		if (mover_of(i) && mover_of(i)->refill)
			mover_of(i)->refill(&now.grant);
}

static void refill(const struct gl_grant *grant)
{
	now.grant = *grant;
	if (now.restores) {
		refill_begun();
		return;
	}
	now.refills = true;
	now.since = now_ns();
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (mover_of(i) && mover_of(i)->refill)
			mover_of(i)->refill(grant);
}

static bool refilled(void)
{
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (mover_of(i) && mover_of(i)->refill && !mover_of(i)->restored())
			return false;
	return true;
}

static struct moved brought(void)
{
	struct moved moved = now.moved;

	now.moved = (struct moved){0};
	return moved;
}

/* -- every kind at once ------------------------------------------------------------------ */

#define EACH(call)                                                                                 \
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)                                                \
		if (mover_of(i) && mover_of(i)->call)                                              \
	mover_of(i)->call

static bool let_go(void)
{
	bool any = false;

	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (mover_of(i) && mover_of(i)->let_go)
			any |= mover_of(i)->let_go();
	return any;
}

static void evict(const struct gl_memory *amounts)
{
	EACH(evict)(amounts);
}

static void leave(void)
{
	EACH(leave)();
}

static void preload(const struct gl_memory *amounts)
{
	EACH(preload)(amounts);
}

static void expect(const struct gl_memory *amounts)
{
	EACH(expect)(amounts);
}

static void ahead(const struct gl_memory *amounts)
{
	EACH(ahead)(amounts);
}

static int64_t prepare(void)
{
	int64_t least = -1;

	for (size_t i = 0; i < N_MEMORY_KINDS; i++) {
		int64_t ns = mover_of(i) && mover_of(i)->prepare ? mover_of(i)->prepare() : -1;

		if (ns >= 0 && (least < 0 || ns < least))
			least = ns;
	}
	return least;
}

static bool step(void)
{
	bool busy = false;

	for (size_t i = 0; i < N_MEMORY_KINDS; i++) {
		now.busy[i] = mover_of(i) && mover_of(i)->step();
		busy |= now.busy[i];
	}
	if (now.refills && refilled()) {
		measure(true);
		now.refills = false;
	}
	return busy;
}

static int64_t pause_ns(void)
{
	int64_t least = INT64_MAX;

	for (size_t i = 0; i < N_MEMORY_KINDS; i++) {
		bool concerned = now.busy[i] || (now.restores && i == now.row);
		int64_t ns = concerned && mover_of(i) ? mover_of(i)->pause_ns() : INT64_MAX;

		least = ns < least ? ns : least;
	}
	return least;
}

static void stop(void)
{
	now.restores = now.refills = false;
	now.row = N_MEMORY_KINDS;
	EACH(stop)();
}

const struct mover memory_mover = {
    .restore = restore,
    .restored = restored,
    .refill = refill,
    .let_go = let_go,
    .evict = evict,
    .leave = leave,
    .preload = preload,
    .expect = expect,
    .ahead = ahead,
    .prepare = prepare,
    .step = step,
    .pause_ns = pause_ns,
    .stop = stop,
    .brought = brought,
};
