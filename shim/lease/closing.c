/* closing.c: the phase CLOSING: the gate is shut, and submitted work finishes.
 *
 * Work that does not finish may depend on a call that waits at a gate: one for another device of
 * this process, or one of another process of the job, as the kernels of a collective do. Then one
 * call is let in, and all work has to finish again.
 *
 * It may also depend on a call for the context that it is in: a host function, or a stream that
 * waits for a value, may wait for what another thread submits next. That cannot be told from work
 * which only takes long. So such calls are let in one at a time, once the daemon has given up
 * waiting, and then after pauses that double: a program whose kernels only take long will have
 * finished in one of them.
 */
#include "lease/closing.h"

#include "lease/in_quiet.h"
#include "lease/port.h"
#include "lease/waiters.h"

#define MS INT64_C(1000000)
#define DRAIN_POLL_NS (MS / 20)
#define LONG_DRAIN_POLL_NS (MS / 2)
#define STOP_AFTER_NS (5 * MS)  /* a drain that takes longer is ended by a stop in mid-kernel */
#define STOP_MOST_NS (200 * MS) /* how long a stop may take */
/* What a look at it counts at most: where this process gets no processor, or was halted (SIGSTOP),
 * time has passed in which nothing was tried. */
#define STOP_LOOK_NS (20 * MS)
/* From a stop that has failed to the next one; it is twice as long each time. */
#define STOP_AGAIN_NS (1000 * MS)
#define STUCK_NS (20 * MS)  /* a drain that takes longer may depend on other calls of the job */
#define STEP_NS (1000 * MS) /* how long the lease waits for the one call */
#define ANY_NS (20000 * MS) /* before a call for a busy context is let in, if no revoke says it */
#define FIRST_PAUSE_NS (1000 * MS) /* before the next one */

static uint64_t passed_ns(const struct lease *lease, uint64_t since)
{
	return lease->port->now() - since;
}

void closing_begin(struct lease *lease)
{
	if (lease->stop == LEASE_STOPPING)
		waiters_end_stop(lease);
	lease->port->gate->shut();
	lease->port->gate->step(GATE_STEP_NONE);
	lease->port->mover->stop();
	lease->phase = LEASE_CLOSING;
	lease->closing = (struct lease_closing){
	    .since = lease->port->now(), .any_at = ANY_NS, .any_pause = FIRST_PAUSE_NS};
}

void closing_limit(struct lease *lease, uint64_t ns)
{
	lease->closing.any_at = 2 * (ns > STUCK_NS ? ns : STUCK_NS);
}

static void allow_step(struct lease *lease, enum gate_step which)
{
	if (!lease->closing.step)
		lease->closing.step_from = lease->port->now();
	lease->closing.step = true;
	lease->port->gate->step(which);
	lease->port->wake();
}

void closing_begin_step(struct lease *lease)
{
	closing_begin(lease);
	allow_step(lease, GATE_STEP_IDLE);
}

/* If the call has just passed it is inside, and its work has to finish too. */
void closing_withdraw_step(struct lease *lease)
{
	lease->port->gate->step(GATE_STEP_NONE);
}

/* Has the daemon asked for one call that has not come yet? */
static bool step_expected(const struct lease *lease)
{
	return lease->port->gate->step_pending() && !lease->closing.told_stuck;
}

/* Before the one call comes there is no work to wait for. It is given up after STEP_NS, or if a
 * thread waits for quiet, since that thread may be the one that would make the call. */
static bool keep_waiting_for_step(struct lease *lease)
{
	struct lease_closing *closing = &lease->closing;

	if (!step_expected(lease))
		return false;
	closing->since = lease->port->now();
	if (passed_ns(lease, closing->step_from) < STEP_NS && !lease->port->quiet->wanted())
		return true;
	closing_withdraw_step(lease);
	return false;
}

/* Has all work finished? The gate is checked first, since a thread that is still inside may submit
 * work behind the events of drained(). drained() is called in any case, because it also notes which
 * contexts are busy. */
static bool poll_finished(const struct lease *lease)
{
	bool empty = lease->port->gate->empty(), drained = lease->port->work->drained();

	return empty && drained;
}

/* May a call for a busy context be let in now? Once it may, until a thread makes it. */
static bool any_may_step(struct lease *lease, uint64_t passed)
{
	struct lease_closing *closing = &lease->closing;

	closing->any_step = closing->any_step && lease->port->gate->step_pending();
	if (passed < closing->any_at)
		return closing->any_step;
	closing->any_at = passed + closing->any_pause;
	closing->any_pause *= 2;
	closing->any_step = true;
	return true;
}

/* The work does not finish: tells the daemon, and lets one of the waiting calls in that may help.
 */
static void help_stuck(struct lease *lease, uint64_t passed)
{
	struct gl_epoch stuck = {message_header(GL_STUCK, sizeof(stuck)), lease->epoch};

	if (!lease->closing.told_stuck && !lease->closing.reopens && !lease->closing.silent)
		lease->port->send(&stuck, sizeof(stuck));
	lease->closing.told_stuck = true;
	if (!lease->port->waiting())
		return;
	if (any_may_step(lease, passed))
		allow_step(lease, GATE_STEP_ANY);
	else if (lease->port->work->some_idle())
		allow_step(lease, GATE_STEP_IDLE);
}

/* -- stops in mid-kernel ------------------------------------------------------------ */

static void advance_stop(struct lease *lease)
{
	const struct lease_stops *stops = lease->port->stops;
	struct lease_closing *closing = &lease->closing;
	enum stop_phase phase = stops->phase();
	uint64_t passed = passed_ns(lease, closing->stop_seen);

	closing->stop_ns += passed < STOP_LOOK_NS ? passed : STOP_LOOK_NS;
	closing->stop_seen += passed;
	if (phase == STOP_IS && lease->port->gate->empty() && stops->movable()) {
		lease->stop = LEASE_STOPPED;
		return;
	}
	if ((phase == STOP_IS || phase == STOP_ASKED) && closing->stop_ns <= STOP_MOST_NS)
		return;
	stops->give_up();
	lease->stop = LEASE_RUNS;
	closing->stop_pause = closing->stop_pause ? 2 * closing->stop_pause : STOP_AGAIN_NS;
	closing->stop_at = passed_ns(lease, closing->since) + closing->stop_pause;
}

/* Work that has not finished soon is stopped in mid-kernel, so that nobody waits for a kernel,
 * however long it is. Returns true once it stands still. */
static bool stop_work(struct lease *lease, uint64_t passed)
{
	const struct lease_closing *closing = &lease->closing;

	if (lease->stop == LEASE_STOPPING) {
		advance_stop(lease);
	} else if (lease->stop == LEASE_RUNS && !closing->reopens && !closing->step &&
	           passed >= STOP_AFTER_NS && passed >= closing->stop_at &&
	           lease->port->stops->able()) {
		lease->port->stops->begin();
		lease->stop = LEASE_STOPPING;
		lease->closing.stop_seen = lease->port->now();
		lease->closing.stop_ns = 0;
	}
	return lease->stop == LEASE_STOPPED;
}

static void release(struct lease *lease)
{
	struct link_sample moved = lease->port->mover->link_sample();
	struct gl_released released = {
	    .header = message_header(GL_RELEASED, sizeof(released)),
	    .epoch = lease->epoch,
	    .flags = (waiters_want(lease) ? GL_RELEASED_WANTS : 0) |
	             (lease->stop == LEASE_STOPPED ? GL_RELEASED_STOPPED : 0),
	    .prefetch_bytes = moved.bytes,
	    .prefetch_ns = moved.ns,
	};

	lease->phase = LEASE_NONE;
	lease->epoch = 0;
	lease->alone = false;
	waiters_gone(lease);
	if (lease->closing.silent)
		return;
	lease->port->send_memory();
	lease->requested = released.flags & GL_RELEASED_WANTS;
	if (lease->requested)
		waiters_end_pause(lease);
	lease->port->send(&released, sizeof(released));
}

/* Nobody is inside, and no work is in flight or all of it is stopped. */
static void finish(struct lease *lease)
{
	if (lease->stop == LEASE_STOPPING) /* the work has finished before it */
		waiters_end_stop(lease);
	if (!lease->closing.drained && lease->stop != LEASE_STOPPED)
		in_quiet_do(lease);
	lease->closing.drained = true;
	if (lease->closing.reopens) {
		waiters_open(lease);
		return;
	}
	if (lease->port->mover->allow_eviction() && !lease->port->gate->empty())
		return;
	release(lease);
}

void closing_advance(struct lease *lease)
{
	struct lease_closing *closing = &lease->closing;
	uint64_t passed;

	if (keep_waiting_for_step(lease))
		return;
	passed = passed_ns(lease, closing->since);
	if (closing->drained && lease->moving) /* a copy that has begun is finished first */
		return;
	if (closing->reopens && !closing->drained && in_quiet_gives_up(lease, passed)) {
		closing_withdraw_step(lease);
		waiters_open(lease);
		return;
	}
	if (!closing->drained && !stop_work(lease, passed) && !poll_finished(lease)) {
		if (passed > STUCK_NS && lease->stop == LEASE_RUNS)
			help_stuck(lease, passed);
	} else if (closing->step) { /* the call may have come after poll_finished(): check again */
		closing_withdraw_step(lease);
		closing->step = false;
	} else {
		finish(lease);
	}
}

int64_t closing_pause_ns(const struct lease *lease)
{
	const struct lease_closing *closing = &lease->closing;
	uint64_t since = step_expected(lease) ? closing->step_from : closing->since;

	return passed_ns(lease, since) < STUCK_NS ? DRAIN_POLL_NS : LONG_DRAIN_POLL_NS;
}
