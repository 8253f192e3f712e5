/* lease.c: the phases of the lease, and what messages make of them. */
#include "lease/lease.h"

#include "lease/closing.h"
#include "lease/in_quiet.h"
#include "lease/port.h"
#include "lease/waiters.h"

#define SAMPLE_EVERY_NS UINT64_C(2000000)
#define ALONE_NS UINT64_C(10000000000)  /* for so long work stays stopped without a daemon */
#define SAMPLED_NS UINT64_C(1000000000) /* after each question */

void lease_begin(struct lease *lease, const struct lease_port *port)
{
	*lease = (struct lease)LEASE_INITIAL(port);
}

void lease_end(struct lease *lease)
{
	lease->phase = LEASE_ENDED;
	/* Without its memory stopped work would fault; it stands until the process ends. */
	if (!lease->left)
		waiters_end_stop(lease);
	lease->port->gate->shut();
	lease->port->gate->step(GATE_STEP_NONE);
	waiters_gone(lease);
	lease->port->mover->stop();
}

/* -- asking -------------------------------------------------------------------- */

bool lease_may_greet(struct lease *lease)
{
	if (lease->alone && lease->phase == LEASE_NONE) {
		closing_begin(lease);
		lease->closing.silent = true;
		lease->alone_since = 0;
	}
	return !lease->alone;
}

void lease_hello(struct lease *lease, struct gl_hello *hello)
{
	lease->alone_since = 0;
	lease->requested = lease->phase == LEASE_NONE && waiters_want(lease);
	hello->held_epoch = lease->epoch;
	hello->flags = lease->requested ? GL_HELLO_WANTS : 0;
}

/* MEMORY goes before REQUEST, so that the daemon knows how much a grant would bring to the device.
 */
void lease_ask(struct lease *lease)
{
	struct gl_header request = message_header(GL_REQUEST, sizeof(request));

	if (lease->phase != LEASE_NONE || lease->requested || !waiters_want(lease))
		return;
	waiters_end_pause(lease);
	lease->port->send_memory();
	lease->requested = true;
	lease->port->send(&request, sizeof(request));
}

void lease_tell_signals(struct lease *lease)
{
	struct gl_header signalled = message_header(GL_SIGNALLED, sizeof(signalled));
	unsigned int signals = lease->port->signals();

	if (signals == lease->signals_told || lease->phase != LEASE_NONE || !lease->requested)
		return;
	lease->signals_told = signals;
	lease->port->send(&signalled, sizeof(signalled));
}

bool lease_keeps_duty(const struct lease *lease)
{
	if (lease->phase == LEASE_CLOSING) /* work that cannot be stopped has to finish */
		return lease->port->stops->able();
	return lease->phase == LEASE_OPEN;
}

bool lease_is_wanted(const struct lease *lease)
{
	switch (lease->phase) {
	case LEASE_NONE:
		return lease->requested;
	case LEASE_RESTORING:
	case LEASE_CLOSING:
		return true;
	case LEASE_OPEN:
		return lease->idle_ns != GL_IDLE_NEVER;
	case LEASE_ENDED:
		break;
	}
	return false;
}

bool lease_awaited(const struct lease *lease)
{
	return lease->phase == LEASE_NONE || lease->phase == LEASE_RESTORING;
}

/* The process keeps its lease. Without a daemon it cannot learn of other jobs that wait, so it acts
 * as if there were none. */
void lease_forget_daemon(struct lease *lease)
{
	lease->requested = false;
	lease->alone_since = lease->port->now();
	lease->signals_told = lease->signals;
	lease->tells_ready = false;
	lease->watched_until = 0;
	lease->bursts = (struct bursts){0};
	lease->grant.idle_ns = GL_IDLE_NEVER;
	waiters_gone(lease);
	waiters_end_rest(lease);
	if (lease->phase == LEASE_CLOSING)
		closing_withdraw_step(lease);
	if (lease->phase != LEASE_RESTORING)
		lease->port->mover->stop(); /* evictions are for jobs that wait */
}

/* While memory was being restored no call was let in, so there is no work to wait for, unless
 * stopped work has gone on; memory that is not restored yet stays evicted. It may be CLOSING
 * already. */
static void give_back(struct lease *lease)
{
	bool restoring = lease->phase == LEASE_RESTORING && !lease->resumed;
	bool drained = lease->phase == LEASE_CLOSING && lease->closing.drained;

	closing_begin(lease);
	lease->closing.drained = restoring || drained;
}

void lease_give_up(struct lease *lease)
{
	lease->alone_since = 0; /* there may be a daemon */
	if (lease->phase == LEASE_OPEN || lease->phase == LEASE_RESTORING)
		give_back(lease);
}

/* -- restoring ----------------------------------------------------------------- */

/* RESTORED reports the bytes that were restored since the last report. */
static void send_restored(struct lease *lease)
{
	struct link_sample moved = lease->port->mover->link_sample();
	struct gl_restored restored = {.header = message_header(GL_RESTORED, sizeof(restored)),
	                               .epoch = lease->epoch,
	                               .bytes = moved.bytes,
	                               .ns = moved.ns};

	lease->port->send(&restored, sizeof(restored));
}

/* The rest is restored while it runs. */
static void resume_if_possible(struct lease *lease)
{
	if (lease->stop != LEASE_STOPPED || !lease->port->mover->needed_is_here())
		return;
	waiters_end_stop(lease);
	lease->resumed = true;
}

/* Opens the gate once all memory is restored. */
static void advance_restoring(struct lease *lease)
{
	if (!lease->port->mover->restore_finished()) {
		resume_if_possible(lease);
		return;
	}
	if (lease->for_step) {
		waiters_end_stop(lease);
		closing_begin_step(lease);
		return;
	}
	if (lease->port->swaps())
		send_restored(lease);
	waiters_open(lease);
}

static void begin_restoring(struct lease *lease, bool for_step)
{
	const struct mover *mover = lease->port->mover;

	lease->phase = LEASE_RESTORING;
	lease->for_step = for_step;
	lease->resumed = false;
	mover->restore(for_step ? NULL : &lease->grant);
	lease->moving = mover->step();
	advance_restoring(lease);
}

/* -- messages ------------------------------------------------------------------ */

/* Memory of the process is told to leave. What the driver moves, it brings back by itself. */
static void note_leaving(struct lease *lease)
{
	lease->left = lease->stop == LEASE_STOPPED && lease->port->swaps();
}

/* Is the lease about to be released? */
static bool releases(const struct lease *lease)
{
	return lease->phase == LEASE_CLOSING && !lease->closing.reopens;
}

/* Restores memory that others have displaced, unless the lease is about to be released: the daemon
 * will receive RELEASED, and sends another GRANT later. */
static void restore_displaced(struct lease *lease, const struct gl_grant *grant)
{
	if (releases(lease))
		return;
	waiters_end_rest(lease);
	lease->grant = *grant;
	lease->port->mover->refill(grant);
	if (lease->phase == LEASE_OPEN)
		waiters_update(lease);
}

/* The lease goes on under another epoch. */
static void renumber(struct lease *lease, const struct gl_grant *grant)
{
	lease->epoch = grant->epoch;
	lease->for_step = false;
	restore_displaced(lease, grant);
	if (lease->phase != LEASE_RESTORING && !releases(lease) && lease->port->swaps())
		send_restored(lease);
}

/* For the lease that the process has already it is a RESTORE. */
static void take_grant(struct lease *lease, const struct gl_grant *grant)
{
	if (!grant->epoch || grant->epoch < lease->epoch)
		return;
	if (lease->phase != LEASE_NONE) {
		if (grant->epoch == lease->epoch)
			restore_displaced(lease, grant);
		else
			renumber(lease, grant);
		return;
	}
	lease->requested = false;
	lease->epoch = grant->epoch;
	waiters_end_rest(lease);
	lease->grant = *grant;
	begin_restoring(lease, false);
}

static void take_revoke(struct lease *lease, uint64_t deadline_ns)
{
	give_back(lease);
	closing_limit(lease, deadline_ns);
}

static void take_contended(struct lease *lease, const struct gl_contended *contended)
{
	lease->grant.idle_ns = contended->idle_ns;
	lease->grant.in_flight_ns = contended->in_flight_ns;
	if (lease->phase == LEASE_OPEN)
		waiters_update(lease);
}

/* Another process of the job is stuck: hold the lease again for one call. */
static void take_step(struct lease *lease, uint64_t epoch)
{
	if (!epoch || lease->phase != LEASE_NONE)
		return;
	lease->epoch = epoch;
	begin_restoring(lease, true);
}

void lease_take(struct lease *lease, const void *message)
{
	const struct gl_header *header = message;
	const struct mover *mover = lease->port->mover;
	const union {
		struct gl_grant grant;
		struct gl_revoke revoke;
		struct gl_contended contended;
		struct gl_epoch step;
		struct gl_memory amounts;
	} *m = message;

	if (lease->phase == LEASE_ENDED)
		return;
	switch ((enum gl_type)header->type) {
	case GL_GRANT:
		take_grant(lease, &m->grant);
		break;
	case GL_RESTORE:
		if (lease->epoch && m->grant.epoch == lease->epoch)
			restore_displaced(lease, &m->grant);
		break;
	case GL_REVOKE:
		if (lease->epoch && m->revoke.epoch == lease->epoch)
			take_revoke(lease, m->revoke.deadline_ns);
		break;
	case GL_CONTENDED:
		if (lease->epoch && m->contended.epoch == lease->epoch)
			take_contended(lease, &m->contended);
		break;
	case GL_STEP:
		take_step(lease, m->step.epoch);
		break;
	case GL_WATCH:
		lease->watched_until = lease->port->now() + SAMPLED_NS;
		break;
	case GL_EVICT:
		if (lease->phase == LEASE_NONE) {
			note_leaving(lease);
			mover->evict(&m->amounts);
		}
		break;
	case GL_LEAVE:
		if (lease->phase == LEASE_NONE) {
			note_leaving(lease);
			mover->evict_all();
		}
		break;
	case GL_PRELOAD:
		if (lease->phase == LEASE_NONE)
			mover->preload(&m->amounts);
		break;
	case GL_EXPECT:
		mover->expect(&m->amounts);
		lease->tells_ready |= (m->amounts.flags & GL_EXPECT_TELLS) != 0;
		break;
	case GL_AHEAD:
		mover->keep_host_memory(&m->amounts);
		break;
	default:
		break;
	}
}

void lease_moves(struct lease *lease, bool moves)
{
	lease->port->mover->rest(moves);
	lease->tells_ready |= moves;
}

/* -- time passes --------------------------------------------------------------- */

/* Without a lease the device is quiet already, as far as this process goes, unless its work is
 * stopped or has gone on. An open lease is shut for the tasks, and reopened; one in CLOSING does
 * them when its work has finished. */
static void begin_quiet(struct lease *lease)
{
	if (lease->phase == LEASE_NONE && lease->stop != LEASE_STOPPED && !lease->alone) {
		in_quiet_do(lease);
	} else if (lease->phase == LEASE_OPEN) {
		closing_begin(lease);
		lease->closing.reopens = true;
	}
}

static struct gl_done submitted(const struct lease *lease)
{
	const struct lease_gate *gate = lease->port->gate;

	return (struct gl_done){gate->calls(), gate->graphs(), lease->busy_ns};
}

void lease_measure(struct lease *lease, struct gl_progress *progress)
{
	/* What there was before it looks does not count. */
	if (!lease->sampled_at)
		lease->done = lease->marked = submitted(lease);
	lease->sample_until = lease->port->now() + SAMPLED_NS;
	progress->busy_ns = lease->busy_ns;
	progress->seen_ns = lease->seen_ns;
	progress->wanted_ns = lease->wanted_ns;
	progress->bursts = lease->n_bursts;
	progress->done = lease->done;
}

static void tell_bursts(struct lease *lease, bool works, uint64_t since)
{
	struct gl_header rests = message_header(GL_RESTS, sizeof(rests));
	struct gl_header again = message_header(GL_WORKS, sizeof(again));

	if (lease->port->now() >= lease->watched_until) {
		lease->bursts = (struct bursts){0};
		return;
	}
	switch (bursts_note(&lease->bursts, works, since)) {
	case BURSTS_NOTHING:
		break;
	case BURSTS_RESTS:
		lease->port->send(&rests, sizeof(rests));
		break;
	case BURSTS_WORKS:
		lease->port->send(&again, sizeof(again));
		break;
	}
}

/* Calls are counted together with the time that they took, at moments at which both are known: a
 * program may be far ahead with its calls. What there was at the mark has finished; if all work
 * has, so have the calls until now. */
static void note_done(struct lease *lease, bool idle, struct gl_done now)
{
	lease->done = idle ? now : lease->marked;
	lease->done.ns = lease->busy_ns;
	lease->marked = now;
}

/* What a sample finds counts for the time since the one before. */
static void count_sample(struct lease *lease, uint64_t since)
{
	struct gl_done now = submitted(lease);
	bool known = lease->port->gate->empty(), idle = known && lease->port->work->idle();
	bool works = !idle || lease->port->gate->calls() != lease->sampled_calls;

	lease->seen_ns += since;
	lease->busy_ns += idle ? 0 : since;
	lease->wanted_ns += works ? since : 0;
	lease->n_bursts += works && !lease->sample_worked;
	lease->sample_worked = works;
	tell_bursts(lease, works, since);
	if (known && lease->port->work->passed())
		note_done(lease, idle, now);
}

static void sample(struct lease *lease)
{
	uint64_t now = lease->port->now(), since = now - lease->sampled_at;
	bool paused;

	if (now >= lease->sample_until) {
		lease->sampled_at = 0;
		return;
	}
	if (lease->sampled_at && since < SAMPLE_EVERY_NS)
		return;
	paused = lease->port->stops->paused();
	if (lease->sampled_at && since < SAMPLED_NS && !paused && !lease->sample_paused)
		count_sample(lease, since);
	lease->sampled_at = now;
	lease->sample_paused = paused;
	lease->sampled_calls = lease->port->gate->calls();
}

/* How many ns stopped work has to wait for a daemon yet; below 0: there is one, nothing is stopped,
 * or it needs memory that is away. */
static int64_t alone_ns(const struct lease *lease)
{
	uint64_t since = lease->alone_since, passed = lease->port->now() - since;

	if (!since || lease->phase != LEASE_NONE || lease->stop != LEASE_STOPPED || lease->left)
		return -1;
	return passed < ALONE_NS ? (int64_t)(ALONE_NS - passed) : 0;
}

/* Nobody will say any more when it may go on. Its memory stays from then on, as with a lease; what
 * waits at the gate goes on waiting. */
static void resume_alone(struct lease *lease)
{
	const struct mover *mover = lease->port->mover;

	if (alone_ns(lease) != 0)
		return;
	mover->restore(NULL);
	lease->left = !mover->needed_is_here();
	mover->stop();
	if (lease->left)
		return;
	waiters_end_stop(lease);
	lease->alone = true;
}

static void release_if_idle(struct lease *lease)
{
	sample(lease);
	waiters_note_work(lease);
	waiters_note_rest(lease);
	if (waiters_idle_long_enough(lease))
		closing_begin(lease);
}

/* Prepares for later stops, and host memory for later evictions, but not while memory is moved,
 * which it would slow down. */
static void prepare(struct lease *lease)
{
	bool calm = lease->phase == LEASE_OPEN || (lease->phase == LEASE_NONE && !lease->moving);
	int64_t ns = calm ? lease->port->mover->prepare() : -1;

	lease->prepare_ns = ns > 0 ? ns : 0;
	if (calm && ns < 0 && lease->tells_ready) {
		struct gl_header ready = message_header(GL_READY, sizeof(ready));

		lease->tells_ready = false;
		lease->port->send(&ready, sizeof(ready));
	}
	if (lease->phase == LEASE_OPEN)
		lease->port->stops->prepare();
}

void lease_advance(struct lease *lease)
{
	if (lease->phase == LEASE_ENDED)
		return;
	lease->moving = lease->port->mover->step();
	if (lease->phase == LEASE_RESTORING) {
		advance_restoring(lease);
		return;
	}
	if (in_quiet_wanted(lease))
		begin_quiet(lease);
	if (lease->phase == LEASE_CLOSING)
		closing_advance(lease);
	else if (lease->phase == LEASE_OPEN)
		release_if_idle(lease);
	resume_alone(lease);
	prepare(lease);
}

/* Below 0: never. */
static int64_t sooner(int64_t a, int64_t b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}

int64_t lease_pause_ns(const struct lease *lease)
{
	int64_t ns;

	switch (lease->phase) {
	case LEASE_ENDED:
		return -1;
	case LEASE_CLOSING:
		return closing_pause_ns(lease);
	case LEASE_RESTORING:
		return lease->port->mover->pause_ns();
	case LEASE_NONE:
	case LEASE_OPEN:
		break;
	}
	if (in_quiet_wanted(lease) && lease->stop != LEASE_STOPPED && !lease->alone)
		return 0; /* the tasks came while memory was being restored */
	if (lease->moving)
		return lease->port->mover->pause_ns();
	ns = lease->phase == LEASE_OPEN ? waiters_pause_ns(lease) : alone_ns(lease);
	if (lease->phase == LEASE_OPEN && lease->sampled_at && ns > (int64_t)SAMPLE_EVERY_NS)
		ns = SAMPLE_EVERY_NS;
	if (lease->phase == LEASE_OPEN)
		ns = sooner(ns, in_quiet_tidy_ns(lease));
	return lease->prepare_ns ? sooner(ns, lease->prepare_ns) : ns;
}
