/* lease.c: the lease, from its grant to its release; steps of the client thread.
 *
 * none -> restoring (memory comes back) -> open -> closing (the gate is shut and
 * what was submitted finishes) -> none. A step of GL_STEP goes from restoring
 * straight to closing, and lets one call in there.
 */
#include "lease/lease.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/fork.h"
#include "base/wire.h"
#include "gate/bound.h"
#include "gate/gate.h"
#include "gate/quiet.h"
#include "gate/waiting.h"
#include "lease/idle.h"
#include "lease/link.h"
#include "memory/mover.h"
#include "tenant/tenant.h"
#include "work/contexts.h"
#include "work/drain.h"

#define MS INT64_C(1000000)
#define IDLE_LOOK_MIN_NS MS
#define IDLE_LOOK_MAX_NS (5 * MS)
#define DRAIN_LOOK_NS (MS / 20)
#define LONG_DRAIN_LOOK_NS (MS / 2)
#define STUCK_NS (20 * MS) /* a drain that takes longer may wait for others of the job */

/* Of the client thread alone. */
static struct {
	uint64_t epoch;      /* of the lease we hold, else 0 */
	bool requested;      /* and not yet granted */
	uint64_t idle_ns;    /* while contended, else GL_IDLE_NEVER */
	uint64_t idle_since; /* of a pause that has not ended, as far as known; else 0 */
	uint64_t handoff_ns; /* what the last one would have taken */
	struct idle_history pauses;
	unsigned long calls;            /* submissions when last looked */
	enum gl_release_reason closing; /* why the lease is being given up, else 0 */
	uint64_t closing_since;
	bool told_stuck;
	bool let_in;        /* one call, while closing */
	bool pausing;       /* it closes for something quiet, and opens again */
	bool gone;          /* drained: memory may leave as soon as nobody is inside */
	uint64_t restoring; /* since when memory comes back, for what follows, else 0 */
	bool restores_for_step;
	struct gl_grant grant; /* that is being carried out */
	bool moving;           /* memory, at the last step */
} me = {.idle_ns = GL_IDLE_NEVER};

/* -- asking -------------------------------------------------------------------- */

void lease_hello(struct gl_hello *hello)
{
	me.requested = !me.epoch && threads_waiting(WAIT_GATE) > 0;
	hello->held_epoch = me.epoch;
	hello->flags = me.requested ? GL_HELLO_WANTS : 0;
}

static void end_pause(void)
{
	if (me.idle_since)
		idle_note(&me.pauses, now_ns() - me.idle_since, me.handoff_ns);
	me.idle_since = 0;
}

/* Before it asks for the device the daemon knows what it will bring there. */
void lease_ask(void)
{
	struct gl_header request = message_header(GL_REQUEST, sizeof(request));

	if (me.epoch || me.requested || !threads_waiting(WAIT_GATE))
		return;
	end_pause();
	link_send_memory();
	me.requested = true;
	link_send(&request, sizeof(request));
}

bool lease_awaited(void)
{
	return !me.epoch || me.restoring;
}

/* The daemon that knew of us is gone: nobody waits whom we could hear of. */
void lease_forget_daemon(void)
{
	me.requested = false;
	me.idle_ns = me.grant.idle_ns = GL_IDLE_NEVER;
	gate_bound(false);
	if (me.closing)
		gate_step(false); /* nor is anybody stuck whom one call could help */
	if (!me.restoring)
		memory_mover.stop(); /* nor is room made for anybody */
}

/* Somebody waits, or nobody does any more. */
static void set_contended(uint64_t idle_ns, uint64_t in_flight_ns)
{
	bool waited_for = idle_ns != GL_IDLE_NEVER;

	if (waited_for && me.idle_ns == GL_IDLE_NEVER && in_flight_ns)
		bound_begin(in_flight_ns);
	gate_bound(waited_for && in_flight_ns);
	me.idle_ns = idle_ns;
	if (waited_for)
		me.handoff_ns = idle_ns;
	me.idle_since = 0;
	me.calls = gate_calls();
}

/* -- giving up ---------------------------------------------------------------- */

static void release(enum gl_release_reason reason, uint64_t drain_ns)
{
	struct moved moved = memory_mover.brought();
	struct gl_released released = {
	    .header = message_header(GL_RELEASED, sizeof(released)),
	    .epoch = me.epoch,
	    .reason = reason,
	    .flags = threads_waiting(WAIT_GATE) ? GL_RELEASED_WANTS : 0,
	    .drain_ns = drain_ns,
	    .prefetch_bytes = moved.bytes,
	    .prefetch_ns = moved.ns,
	};

	debug("release lease %llu (%s)", (unsigned long long)me.epoch,
	      reason == GL_RELEASE_IDLE ? "idle" : "revoked");
	me.epoch = 0;
	me.idle_ns = GL_IDLE_NEVER;
	link_send_memory();
	me.requested = released.flags;
	if (me.requested)
		end_pause();
	link_send(&released, sizeof(released));
}

/* From now on nobody enters; advance_closing() does the rest, step by step. */
static void begin_closing(enum gl_release_reason reason)
{
	gate_shut();
	gate_step(false);
	memory_mover.stop();
	me.let_in = me.gone = me.pausing = false;
	me.closing = reason;
	me.closing_since = now_ns();
	me.told_stuck = false;
}

static void allow_step(void)
{
	me.let_in = true;
	gate_step(true);
	waiting_look();
}

/* What was submitted does not finish. It may wait for a call that waits here,
 * on another device, or in another process of the job. */
static void help_stuck(void)
{
	struct gl_epoch stuck = {message_header(GL_STUCK, sizeof(stuck)), me.epoch};

	if (!me.told_stuck && !me.pausing)
		link_send(&stuck, sizeof(stuck));
	me.told_stuck = true;
	if (contexts_some_idle() && threads_waiting(WAIT_GATE))
		allow_step();
}

/* Who is still inside has not been seen by the events; they tell then which contexts are busy. */
static bool all_finished(void)
{
	bool empty = gate_empty(), done = drained();

	return empty && done;
}

static void open_again(void)
{
	me.closing = 0;
	me.pausing = me.gone = false;
	gate_open();
	waiting_look();
	set_contended(me.grant.idle_ns, me.grant.in_flight_ns);
}

static void advance_closing(void)
{
	uint64_t passed = now_ns() - me.closing_since;
	enum gl_release_reason reason = me.closing;

	if (gate_step_pending() && !me.told_stuck) { /* the one call has not come yet */
		me.closing_since = now_ns();
		return;
	}
	if (me.gone && me.moving) /* what is on its way arrives */
		return;
	if (me.gone || all_finished()) {
		if (me.let_in) { /* it may just have come */
			gate_step(false);
			me.let_in = false;
			return;
		}
		if (!me.gone)
			quiet_now();
		me.gone = true;
		if (me.pausing) {
			open_again();
			return;
		}
		if (memory_mover.let_go() && !gate_empty())
			return;
		me.closing = 0;
		release(reason, passed);
	} else if ((int64_t)passed > STUCK_NS) {
		help_stuck();
	}
}

/* While contended: yield when it has been idle for long enough (no call, no work under way). */
static void look_idle(void)
{
	unsigned long calls = gate_calls();
	uint64_t now = now_ns();

	if (calls != me.calls || !device_idle()) {
		me.calls = calls;
		end_pause();
		return;
	}
	if (!me.idle_since)
		me.idle_since = now;
	if (idle_enough(&me.pauses, now - me.idle_since, me.idle_ns))
		begin_closing(GL_RELEASE_IDLE);
}

/* -- having -------------------------------------------------------------------- */

static void send_restored(void)
{
	struct moved moved = memory_mover.brought();
	struct gl_restored restored = {.header = message_header(GL_RESTORED, sizeof(restored)),
	                               .epoch = me.epoch,
	                               .bytes = moved.bytes,
	                               .ns = moved.ns};

	link_send(&restored, sizeof(restored));
}

/* The gate opens when everything is back. */
static void advance_restoring(void)
{
	me.moving = memory_mover.step();
	if (!memory_mover.restored())
		return;
	if (me.restores_for_step) {
		me.restoring = 0;
		begin_closing(GL_RELEASE_REVOKED);
		allow_step();
		return;
	}
	if (tenant_swaps())
		send_restored();
	me.restoring = 0;
	gate_open();
	waiting_look();
	set_contended(me.grant.idle_ns, me.grant.in_flight_ns);
}

static void begin_restoring(bool for_step)
{
	me.restoring = now_ns();
	me.restores_for_step = for_step;
	memory_mover.restore(for_step ? NULL : &me.grant);
	advance_restoring();
}

/* -- messages ------------------------------------------------------------------ */

/* Of the lease we have: what others had displaced comes back. The one that we have
 * just given up, as the daemon will hear, is no lease any more. */
static void take_restore(const struct gl_grant *grant)
{
	if (me.epoch != grant->epoch || me.closing)
		return;
	me.idle_since = 0;
	me.grant = *grant;
	memory_mover.refill(grant);
	if (me.restoring)
		return;
	set_contended(grant->idle_ns, grant->in_flight_ns);
}

/* A daemon of 0.1.0 says so, too, what RESTORE says now. */
static void take_grant(const struct gl_grant *grant)
{
	if (me.epoch == grant->epoch) {
		take_restore(grant);
		return;
	}
	debug("lease %llu", (unsigned long long)grant->epoch);
	me.requested = false;
	me.epoch = grant->epoch;
	me.idle_since = 0;
	me.grant = *grant;
	begin_restoring(false);
}

/* What is not back yet stays away: until then nobody has been let in, so there is
 * nothing to wait for, and nobody may be let in for one call. */
static void take_revoke(void)
{
	bool opened = !me.restoring;

	me.restoring = 0;
	begin_closing(GL_RELEASE_REVOKED);
	me.gone = !opened;
}

static void take_contended(const struct gl_contended *contended)
{
	me.grant.idle_ns = contended->idle_ns;
	me.grant.in_flight_ns = contended->in_flight_ns;
	if (!me.restoring)
		set_contended(contended->idle_ns, contended->in_flight_ns);
}

/* Another process of the job is stuck: hold the lease again for one call. */
static void take_step(const struct gl_epoch *message)
{
	if (me.epoch || me.closing)
		return;
	me.epoch = message->epoch;
	begin_restoring(true);
}

void lease_take(const void *data, size_t size)
{
	const struct gl_header *h = data;
	const union {
		struct gl_grant grant;
		struct gl_revoke revoke;
		struct gl_contended contended;
		struct gl_epoch step;
		struct gl_memory amounts;
	} *m = data;

	if (h->type == GL_GRANT && size == sizeof(m->grant)) {
		take_grant(&m->grant);
	} else if (h->type == GL_RESTORE && size == sizeof(m->grant)) {
		take_restore(&m->grant);
	} else if (h->type == GL_REVOKE && size == sizeof(m->revoke)) {
		if (m->revoke.epoch == me.epoch)
			take_revoke();
	} else if (h->type == GL_CONTENDED && size == sizeof(m->contended)) {
		if (m->contended.epoch == me.epoch)
			take_contended(&m->contended);
	} else if (h->type == GL_STEP && size == sizeof(m->step)) {
		take_step(&m->step);
	} else if (h->type == GL_EVICT && size == sizeof(m->amounts)) {
		if (!me.epoch && !me.closing)
			memory_mover.evict(&m->amounts);
	} else if (h->type == GL_PRELOAD && size == sizeof(m->amounts)) {
		if (!me.epoch && !me.closing)
			memory_mover.preload(&m->amounts);
	} else if (h->type == GL_EXPECT && size == sizeof(m->amounts)) {
		memory_mover.expect(&m->amounts);
	}
}

/* -- time passes --------------------------------------------------------------- */

/* What closes already does so for this as well; without a lease it is quiet. */
static void be_quiet(void)
{
	if (!me.epoch) {
		quiet_now();
	} else if (!me.closing) {
		begin_closing(GL_RELEASE_REVOKED);
		me.pausing = true;
	}
}

void lease_advance(void)
{
	if (me.restoring) {
		advance_restoring();
		return;
	}
	me.moving = memory_mover.step();
	if (quiet_wanted())
		be_quiet();
	if (me.closing)
		advance_closing();
	else if (me.epoch && me.idle_ns != GL_IDLE_NEVER)
		look_idle();
	if (me.epoch && !me.closing)
		memory_mover.prepare();
}

int64_t lease_pause_ns(void)
{
	int64_t quarter = (int64_t)(me.idle_ns / 4);

	if (me.closing)
		return (int64_t)(now_ns() - me.closing_since) < STUCK_NS ? DRAIN_LOOK_NS
		                                                         : LONG_DRAIN_LOOK_NS;
	if (me.restoring || me.moving)
		return memory_mover.pause_ns();
	if (me.epoch && me.idle_ns != GL_IDLE_NEVER)
		return quarter < IDLE_LOOK_MIN_NS   ? IDLE_LOOK_MIN_NS
		       : quarter > IDLE_LOOK_MAX_NS ? IDLE_LOOK_MAX_NS
		                                    : quarter;
	return -1;
}

static void in_child(void)
{
	me.epoch = 0;
	me.requested = false;
	me.idle_ns = GL_IDLE_NEVER;
	me.idle_since = 0;
	me.closing = 0;
	me.restoring = 0;
	me.moving = false;
}
FORK_WATCH(in_child);
