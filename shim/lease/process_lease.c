/* process_lease.c: the one lease of this process, with the real functions behind port.h. */
#include "lease/process_lease.h"

#include "base/clock.h"
#include "base/fork.h"
#include "gate/gate.h"
#include "gate/quiet.h"
#include "gate/waiting.h"
#include "lease/busy_groups.h"
#include "lease/link.h"
#include "lease/port.h"
#include "lease/signals.h"
#include "lease/stops.h"
#include "memory/mover.h"
#include "tenant/tenant.h"
#include "work/contexts.h"
#include "work/drain.h"

static uint64_t now(void)
{
	return now_ns();
}

static int waiting(void)
{
	return threads_waiting(WAIT_GATE);
}

static const struct lease_gate gate = {
    .open = gate_open,
    .shut = gate_shut,
    .bound = gate_bound,
    .step = gate_step,
    .step_pending = gate_step_pending,
    .empty = gate_empty,
    .calls = gate_calls,
    .graphs = gate_graphs,
};

static bool idle(void)
{
	bool none = poll_idle(gate_settled());

	busy_groups_note();
	return none;
}

static bool passed(void)
{
	static unsigned long mark; /* the number of a poll */

	return contexts_passed(&mark);
}

static bool drained(void)
{
	return poll_drained(gate_settled());
}

static const struct lease_work work = {
    .drained = drained,
    .idle = idle,
    .passed = passed,
    .some_idle = contexts_some_idle,
};

static const struct lease_quiet quiet = {.wanted = quiet_wanted, .now = quiet_now};

static const struct lease_port port = {
    .now = now,
    .waiting = waiting,
    .signals = signals_handled,
    .wake = waiting_wake_all,
    .send = link_send,
    .send_memory = link_send_memory,
    .swaps = tenant_swaps,
    .gate = &gate,
    .pace = &pace_flight,
    .work = &work,
    .mover = &memory_mover,
    .quiet = &quiet,
    .stops = &process_stops,
};

struct lease process_lease = LEASE_INITIAL(&port);

static void in_child(void)
{
	lease_begin(&process_lease, &port);
}
FORK_WATCH(in_child);
