/* waiters.c: an open lease: its pace and its release when idle, while other jobs wait. */
#include "lease/waiters.h"

#include "lease/port.h"

#define POLL_MIN_NS INT64_C(1000000)
#define POLL_MAX_NS INT64_C(5000000)
#define REST_LOOK_NS INT64_C(125000000) /* between checks while no other job waits */

void waiters_end_pause(struct lease *lease)
{
	if (lease->idle_since)
		idle_note(&lease->pauses, lease->port->now() - lease->idle_since,
		          lease->handoff_ns);
	lease->idle_since = 0;
}

static void set_pace(struct lease *lease, uint64_t in_flight_ns)
{
	const struct pace *pace = lease->port->pace;

	if (in_flight_ns && in_flight_ns != lease->paced_ns)
		pace->begin(in_flight_ns);
	lease->port->gate->bound(in_flight_ns ? pace : NULL);
	if (!in_flight_ns && lease->paced_ns)
		pace->end();
	lease->paced_ns = in_flight_ns;
}

void waiters_gone(struct lease *lease)
{
	set_pace(lease, 0);
	lease->idle_ns = GL_IDLE_NEVER;
}

/* A pause continues when the first job begins to wait, and when the last one has gone. */
static void carry_pause_over(struct lease *lease)
{
	unsigned long calls = lease->port->gate->calls();
	uint64_t since = lease->idle_since ? lease->idle_since : lease->rests_since;

	lease->rests_since = lease->idle_since = calls == lease->calls ? since : 0;
	lease->calls = calls;
}

void waiters_update(struct lease *lease)
{
	carry_pause_over(lease);
	if (lease->grant.idle_ns == GL_IDLE_NEVER) {
		waiters_gone(lease);
		return;
	}
	/* Work that can be stopped in mid-kernel holds nobody up, however much is in flight. */
	set_pace(lease, lease->port->stops->able() ? 0 : lease->grant.in_flight_ns);
	lease->idle_ns = lease->handoff_ns = lease->grant.idle_ns;
}

void waiters_end_rest(struct lease *lease)
{
	lease->idle_since = lease->rests_since = 0;
}

bool waiters_want(const struct lease *lease)
{
	return lease->stop == LEASE_STOPPED || lease->port->waiting() > 0;
}

void waiters_end_stop(struct lease *lease)
{
	if (lease->stop != LEASE_RUNS)
		lease->port->stops->end();
	lease->stop = LEASE_RUNS;
	lease->left = false;
}

void waiters_open(struct lease *lease)
{
	waiters_end_stop(lease);
	lease->port->stops->prepare();
	lease->phase = LEASE_OPEN;
	lease->sampled_at = 0;
	lease->patient = lease->signals != lease->signals_told;
	lease->signals = lease->signals_told = lease->port->signals();
	waiters_end_rest(lease);
	lease->port->gate->open();
	lease->port->wake();
	waiters_update(lease);
}

void waiters_note_work(struct lease *lease)
{
	const struct lease_gate *gate = lease->port->gate;
	unsigned long calls = gate->calls();
	uint64_t now = lease->port->now();

	if (lease->idle_ns == GL_IDLE_NEVER)
		return;
	/* A call that takes long is no pause, since the lease cannot be released before it ends. */
	if (calls != lease->calls || !gate->empty() || !lease->port->work->idle()) {
		lease->calls = calls;
		waiters_end_pause(lease);
	} else if (!lease->idle_since) {
		lease->idle_since = now;
	}
}

void waiters_note_rest(struct lease *lease)
{
	const struct lease_gate *gate = lease->port->gate;
	unsigned long calls = gate->calls();
	uint64_t now = lease->port->now();

	if (lease->idle_ns != GL_IDLE_NEVER || now < lease->look_at)
		return;
	lease->look_at = now + REST_LOOK_NS;
	if (calls != lease->calls)
		lease->rests_since = 0;
	else if (!lease->rests_since && gate->empty() && lease->port->work->idle())
		lease->rests_since = now;
	lease->calls = calls;
}

/* What a program does after a signal, it does not do again and again. */
bool waiters_idle_long_enough(const struct lease *lease)
{
	uint64_t so_far;

	if (lease->idle_ns == GL_IDLE_NEVER || !lease->idle_since)
		return false;
	so_far = lease->port->now() - lease->idle_since;
	if (lease->patient)
		return so_far >= lease->idle_ns;
	return idle_enough(&lease->pauses, so_far, lease->idle_ns);
}

int64_t waiters_pause_ns(const struct lease *lease)
{
	int64_t quarter = (int64_t)(lease->idle_ns / 4);

	if (lease->idle_ns == GL_IDLE_NEVER)
		return REST_LOOK_NS;
	if (quarter < POLL_MIN_NS)
		return POLL_MIN_NS;
	return quarter > POLL_MAX_NS ? POLL_MAX_NS : quarter;
}
