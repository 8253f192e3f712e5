/* process_lease.c: the one lease of this process, with the real functions behind port.h. */
#include "lease/process_lease.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/fork.h"
#include "channels/channels.h"
#include "gate/gate.h"
#include "gate/quiet.h"
#include "gate/waiting.h"
#include "lease/link.h"
#include "lease/port.h"
#include "lease/signals.h"
#include "memory/mover.h"
#include "memory/swap/in_stop.h"
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
};

static const struct lease_work work = {
    .drained = poll_drained,
    .idle = poll_idle,
    .some_idle = contexts_some_idle,
};

static const struct lease_quiet quiet = {.wanted = quiet_wanted, .now = quiet_now};

/* -- stops in mid-kernel ----------------------------------------------------------------- */

#define RENEW_NS UINT64_C(100000000) /* a stop lasts for so long unless it is renewed */

/* Managed memory is moved by copies that the driver may order behind the program's kernels. */
static bool able(void)
{
	return channels_state() == CHANNELS_CONTROLLED && tenant_swaps();
}

static void prepare_stop(void)
{
	if (able())
		swap_stop_prepare();
}

static void begin_stop(void)
{
	gate_stop();
	channels_stop(RENEW_NS);
}

static enum stop_phase stop_phase(void)
{
	enum stop_phase phase = channels_stop_phase();

	channels_renew(RENEW_NS);
	return phase == STOP_IS && !gate_none_held() ? STOP_ASKED : phase;
}

static bool movable(void)
{
	if (!swap_movable_in_stop())
		return false;
	channels_renew(UINT64_MAX);
	if (channels_stop_phase() != STOP_IS)
		return false;
	debug("work is stopped in mid-kernel");
	return true;
}

static void end_stop(void)
{
	channels_resume();
	gate_resume();
}

static const struct lease_stops stops = {
    .able = able,
    .prepare = prepare_stop,
    .begin = begin_stop,
    .phase = stop_phase,
    .movable = movable,
    .end = end_stop,
};

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
    .stops = &stops,
};

struct lease process_lease = LEASE_INITIAL(&port);

static void in_child(void)
{
	lease_begin(&process_lease, &port);
}
FORK_WATCH(in_child);
