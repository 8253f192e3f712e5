/* mover.c: the movers of all kinds of memory (kind.h) together, for the lease. */
#include "memory/mover.h"

#include "base/clock.h"
#include "base/wire.h"
#include "gate/slots.h"
#include "memory/kinds.h"
#include "memory/shared.h"

/* Used by the client thread only. */
static struct {
	bool restores, refills;    /* a restore, or a refill, has begun and not ended */
	bool busy[N_MEMORY_KINDS]; /* the kinds that need more steps */
	size_t row;                /* the kind that is being restored; later ones wait */
	bool granted;              /* false: the lease is for one call only */
	struct gl_grant grant;
	uint64_t began_ns; /* now_ns() when the restore or refill began */
	struct link_sample sample;
} state;

static const struct mover *mover_of(size_t row)
{
	return memory_kinds[row]->mover;
}

/* A restore of all kinds, or a refill of those that can be refilled, has ended. */
static void take_sample(bool refill)
{
	state.sample = (struct link_sample){0};
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (mover_of(i) && (!refill || mover_of(i)->refill))
			state.sample.bytes += mover_of(i)->link_sample().bytes;
	state.sample.ns = state.sample.bytes ? now_ns() - state.began_ns : 0;
}

/* -- restoring: one kind after the other, in the order of the table -------------------- */

static void restore_kind(void)
{
	if (state.row < N_MEMORY_KINDS && mover_of(state.row))
		mover_of(state.row)->restore(state.granted ? &state.grant : NULL);
}

static void restore(const struct gl_grant *grant)
{
	state.restores = true;
	state.refills = false;
	state.granted = grant;
	state.grant = grant ? *grant : (struct gl_grant){0};
	state.began_ns = now_ns();
	state.row = 0;
	shared_restore();
	restore_kind();
}

static bool restore_finished(void)
{
	if (!shared_restored())
		return false;
	while (state.row < N_MEMORY_KINDS) {
		if (mover_of(state.row) && !mover_of(state.row)->restore_finished())
			return false;
		state.row++;
		restore_kind();
	}
	if (state.restores && state.granted)
		take_sample(false);
	state.restores = false;
	return true;
}

static bool needed_is_here(void)
{
	if (!shared_restored())
		return false;
	for (size_t i = state.row; i < N_MEMORY_KINDS; i++)
		if (mover_of(i) && mover_of(i)->needed_is_here && !mover_of(i)->needed_is_here())
			return false;
	return true;
}

/* A refill during a restore concerns the kinds whose restore has begun. Later kinds are restored
 * with the new grant. */
static void refill_begun(void)
{
	for (size_t i = 0; i <= state.row && i < N_MEMORY_KINDS; i++)
		if (mover_of(i) && mover_of(i)->refill)
			mover_of(i)->refill(&state.grant);
}

static void refill(const struct gl_grant *grant)
{
	state.grant = *grant;
	if (state.restores) {
		refill_begun();
		return;
	}
	state.refills = true;
	state.began_ns = now_ns();
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (mover_of(i) && mover_of(i)->refill)
			mover_of(i)->refill(grant);
}

static bool refilled(void)
{
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (mover_of(i) && mover_of(i)->refill && !mover_of(i)->restore_finished())
			return false;
	return true;
}

static struct link_sample link_sample(void)
{
	struct link_sample sample = state.sample;

	state.sample = (struct link_sample){0};
	return sample;
}

/* -- all kinds at once ------------------------------------------------------------------- */

#define EACH(call)                                                                                 \
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)                                                \
		if (mover_of(i) && mover_of(i)->call)                                              \
	mover_of(i)->call

static bool allow_eviction(void)
{
	bool any = false;

	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (mover_of(i) && mover_of(i)->allow_eviction)
			any |= mover_of(i)->allow_eviction();
	if (any && gate_empty())
		shared_let_go();
	return any;
}

static void evict(const struct gl_memory *amounts)
{
	EACH(evict)(amounts);
}

static void evict_all(void)
{
	EACH(evict_all)();
}

static void preload(const struct gl_memory *amounts)
{
	EACH(preload)(amounts);
}

static void expect(const struct gl_memory *amounts)
{
	EACH(expect)(amounts);
}

static void keep_host_memory(const struct gl_memory *amounts)
{
	EACH(keep_host_memory)(amounts);
}

static void rest(bool rest)
{
	EACH(rest)(rest);
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
		state.busy[i] = mover_of(i) && mover_of(i)->step();
		busy |= state.busy[i];
	}
	if (state.refills && refilled()) {
		take_sample(true);
		state.refills = false;
	}
	return busy;
}

static int64_t pause_ns(void)
{
	int64_t least = INT64_MAX;

	for (size_t i = 0; i < N_MEMORY_KINDS; i++) {
		bool concerned = state.busy[i] || (state.restores && i == state.row);
		int64_t ns = concerned && mover_of(i) ? mover_of(i)->pause_ns() : INT64_MAX;

		least = ns < least ? ns : least;
	}
	return least;
}

static bool has_excess(void)
{
	for (size_t i = 0; i < N_MEMORY_KINDS; i++)
		if (mover_of(i) && mover_of(i)->has_excess && mover_of(i)->has_excess())
			return true;
	return false;
}

static void give_up_excess(int64_t ns)
{
	EACH(give_up_excess)(ns);
}

static void stop(void)
{
	state.restores = state.refills = false;
	state.row = N_MEMORY_KINDS;
	EACH(stop)();
}

const struct mover memory_mover = {
    .restore = restore,
    .restore_finished = restore_finished,
    .needed_is_here = needed_is_here,
    .refill = refill,
    .allow_eviction = allow_eviction,
    .evict = evict,
    .evict_all = evict_all,
    .preload = preload,
    .expect = expect,
    .keep_host_memory = keep_host_memory,
    .rest = rest,
    .prepare = prepare,
    .step = step,
    .pause_ns = pause_ns,
    .has_excess = has_excess,
    .give_up_excess = give_up_excess,
    .stop = stop,
    .link_sample = link_sample,
};
