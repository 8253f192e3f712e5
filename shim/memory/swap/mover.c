/* mover.c: the mover of swapped memory: what the lease asks for becomes orders of lanes.
 *
 * The client thread calls it, and hears the daemon between two steps.
 */
#include "memory/swap/mover.h"

#include "base/clock.h"
#include "base/debug.h"
#include "channels/channels.h"
#include "memory/swap/carrier.h"
#include "memory/swap/copy_space.h"
#include "memory/swap/deferred_free.h"
#include "memory/swap/evict.h"
#include "memory/swap/lane.h"
#include "memory/swap/moves.h"
#include "memory/swap/rest.h"
#include "memory/swap/step.h"

#define LONGEST_PAUSE_NS 1000000
#define PRELOAD_PAUSE_NS 10000000 /* the longest pause in a preload, which nobody waits for */

static bool rests; /* the last step left something to be unregistered */

/* -- the orders of one lane ------------------------------------------------------------- */

static void report_moved(const struct lane *lane)
{
	if (lane->moved.evicted)
		debug("evicted %llu KiB, copied %llu",
		      (unsigned long long)lane->moved.evicted >> 10,
		      (unsigned long long)lane->moved.copied_to_host >> 10);
	if (lane->moved.restored)
		debug("restored %llu KiB, copied %llu",
		      (unsigned long long)lane->moved.restored >> 10,
		      (unsigned long long)lane->moved.copied_to_device >> 10);
}

static void begin(struct lane *lane, enum lane_mode mode, uint64_t bytes)
{
	lane->moved.evicted = lane->moved.copied_to_host = 0;
	lane->moved.restored = lane->moved.copied_to_device = 0;
	lane->mode = mode;
	lane->restore_failed = false;
	lane->bytes_left = bytes;
	lane->bytes_preload = 0;
	lane->pause_ns = LANE_PAUSE_NS;
	lane->free_since = lane->restored_at = now_ns();
	moves_restart_in(lane);
}

static void begin_restoring(struct lane *lane)
{
	begin(lane, LANE_RESTORING, 0);
	evict_unfix(lane);
}

/* Restores only segments that have a copy, since the others need no time. An eviction ends first.
 */
static uint64_t preload_lane(struct lane *lane, uint64_t bytes)
{
	if (lane->mode == LANE_EVICTING)
		lane->bytes_preload = bytes;
	else if (lane->mode != LANE_RESTORING)
		begin(lane, LANE_PRELOADING, bytes);
	return bytes;
}

/* An eviction that runs already goes on, and what is asked for now is added to it. */
static uint64_t evict_lane(struct lane *lane, uint64_t bytes)
{
	lane->bytes_preload = 0;
	if (lane->mode != LANE_EVICTING)
		begin(lane, LANE_EVICTING, 0);
	return evict_add(lane, bytes);
}

/* Copies that have begun finish by themselves. */
static void stop_lane(struct lane *lane)
{
	if (lane->mode != LANE_IDLE)
		report_moved(lane);
	lane->mode = LANE_IDLE;
	lane->bytes_left = lane->bytes_preload = 0;
}

/* -- steps -------------------------------------------------------------------------- */

static bool needs_step(struct lane *lane)
{
	return lane->busy || (lane->mode == LANE_RESTORING && lane_misses(lane)) ||
	       (lane->mode == LANE_PRELOADING && lane->bytes_left);
}

/* An eviction or a preload has ended. */
static void end_order(struct lane *lane)
{
	uint64_t next = lane->bytes_preload;

	stop_lane(lane);
	if (next)
		begin(lane, LANE_PRELOADING, next);
}

/* Copies have begun, or an eviction will begin some: there is a short pause. */
static void choose_pause(struct lane *lane)
{
	int64_t longest = lane->mode == LANE_PRELOADING ? PRELOAD_PAUSE_NS : LONGEST_PAUSE_NS;

	if (lane->copier.n || carrier_busy() || (lane->mode == LANE_EVICTING && lane->bytes_left))
		lane->pause_ns = LANE_PAUSE_NS;
	else if (lane->pause_ns < longest)
		lane->pause_ns *= 2;
}

static bool step_lane(struct lane *lane)
{
	if (needs_step(lane))
		lane_take_step(lane);
	if ((lane->mode == LANE_EVICTING || lane->mode == LANE_PRELOADING) && !lane->busy)
		end_order(lane);
	choose_pause(lane);
	return lane->busy || lane->mode == LANE_PRELOADING;
}

/* Is no lane told to do anything? */
static bool all_idle(void)
{
	for_each_lane(lane)
		if (lane->mode != LANE_IDLE)
			return false;
	return true;
}

/* Before it unregisters host memory the driver waits for all work of ours. This thread must not
 * wait with it: it hears the daemon, and has work go on that stands still in mid-kernel. So that is
 * done while there is none, or in quiet (copy_space_give_up_excess()). */
static bool step(void)
{
	bool busy = false, idle, stopped = channels_stop_phase() != STOP_NONE;

	if (!swap_used())
		return false;
	if (carrier_is_there() || carrier_busy())
		lanes_finish_carried();
	for_each_lane(lane)
		if (lane->asked)
			busy |= step_lane(lane);
	busy |= carrier_busy() > 0;
	rests = !stopped && !residency_lasts() && chunks_rest_step();
	busy |= rests;
	idle = !busy && all_idle() && !stopped;
	if (idle)
		swap_free_deferred(false);
	copy_space_look(idle);
	return busy;
}

static int64_t pause_ns(void)
{
	int64_t least = INT64_MAX;

	for_each_lane(lane)
		if (lane->asked && (lane->busy || lane->mode != LANE_IDLE) &&
		    lane->pause_ns < least)
			least = lane->pause_ns;
	if (least < INT64_MAX)
		return least;
	return rests ? LANE_PAUSE_NS : LONGEST_PAUSE_NS;
}

/* -- restoring ---------------------------------------------------------------------- */

/* Everything is restored, whatever the grant says; also what a lane gets that has nothing so far.
 */
static void restore(const struct gl_grant *grant)
{
	(void)grant;
	for_each_lane(lane)
		begin_restoring(lane);
}

static void stop(void)
{
	for_each_lane(lane)
		stop_lane(lane);
}

static bool restore_finished(void)
{
	if (!residency_begin())
		return false;
	stop();
	return true;
}

static struct link_sample link_sample(void)
{
	struct link_sample sample = {0, 0};

	for_each_lane(lane)
		sample.bytes += lane->moved.copied_to_device;
	return sample;
}

/* -- evicting and preloading ---------------------------------------------------------- */

static void preload(const struct gl_memory *amounts)
{
	if (swap_used())
		lanes_named(amounts, preload_lane);
}

static void evict(const struct gl_memory *amounts)
{
	if (swap_used())
		swap_store->expect(lanes_named(amounts, evict_lane));
}

static void evict_all(void)
{
	uint64_t copies = 0;

	if (!swap_used())
		return;
	for_each_lane(lane)
		if (lane->asked)
			copies += evict_lane(lane, UINT64_MAX);
	swap_store->expect(copies);
}

const struct mover swap_mover = {
    .restore = restore,
    .restore_finished = restore_finished,
    .needed_is_here = restore_finished,
    .allow_eviction = residency_end,
    .evict = evict,
    .evict_all = evict_all,
    .preload = preload,
    .expect = copy_space_expect,
    .keep_host_memory = copy_space_keep,
    .rest = chunks_rest,
    .prepare = copy_space_prepare,
    .step = step,
    .pause_ns = pause_ns,
    .has_excess = copy_space_has_excess,
    .give_up_excess = copy_space_give_up_excess,
    .stop = stop,
    .link_sample = link_sample,
};
