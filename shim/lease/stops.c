/* stops.c: the channel groups, the gate and the memory of this process during a stop. */
#include "lease/stops.h"

#include "base/debug.h"
#include "base/fork.h"
#include "channels/channels.h"
#include "gate/gate.h"
#include "memory/swap/in_stop.h"

static bool forbidden;
static unsigned int given_up;
static const char *why = "";

static bool able(void)
{
	return channels_state() == CHANNELS_CONTROLLED && !forbidden;
}

void stops_allow(bool allowed)
{
	forbidden = !allowed;
}

static void prepare(void)
{
	if (able())
		swap_stop_prepare();
}

static void begin(void)
{
	gate_stop();
	channels_stop(STOP_LASTS_NS);
}

static enum stop_phase phase(void)
{
	enum stop_phase now = channels_stop_phase();

	channels_renew(STOP_LASTS_NS);
	return now == STOP_IS && !gate_none_held() ? STOP_ASKED : now;
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

static void end(void)
{
	channels_resume();
	gate_resume();
}

/* What the stop has waited for. */
static const char *obstacle(void)
{
	if (!gate_none_held() || !gate_empty())
		return "a thread of the program was in a call of the driver";
	if (channels_stop_phase() != STOP_IS)
		return "the driver did not take its channels off the GPU";
	return "its copies did not end";
}

static void give_up(void)
{
	why = obstacle();
	given_up++;
	debug("a stop is given up: %s", why);
	channels_give_up();
	gate_resume();
}

const struct lease_stops process_stops = {
    .able = able,
    .paused = channels_paused,
    .prepare = prepare,
    .begin = begin,
    .phase = phase,
    .movable = movable,
    .end = end,
    .give_up = give_up,
};

unsigned int stops_given_up(void)
{
	return given_up;
}

const char *stops_why(void)
{
	return why;
}

static void in_child(void)
{
	forbidden = false;
	given_up = 0;
	why = "";
}
FORK_WATCH(in_child);
