/* mover.c: the mover of swapped memory: what the lease asks for becomes orders of lanes.
 *
 * The client thread calls it, and hears the daemon between two steps.
 */
#include "memory/swap/mover.h"

#include "channels/channels.h"
#include "memory/swap/copy_space.h"
#include "memory/swap/deferred_free.h"
#include "memory/swap/lane.h"
#include "memory/swap/step.h"

#define LONGEST_PAUSE_NS 1000000

/* -- steps -------------------------------------------------------------------------- */

/* Is no lane told to do anything? */
static bool all_idle(void)
{
	for_each_lane(lane)
		if (lane->mode != LANE_IDLE)
			return false;
	return true;
}

static bool step(void)
{
	bool busy = false;

	if (!swap_used())
		return false;
	for_each_lane(lane)
		if (lane->asked)
			busy |= lane_step(lane);
	if (!busy && all_idle() && channels_stop_phase() == STOP_NONE) {
		swap_free_deferred(false);
		copy_space_trim();
	}
	return busy;
}

static int64_t pause_ns(void)
{
	int64_t least = INT64_MAX;

	for_each_lane(lane)
		if (lane->asked && (lane->busy || lane->mode != LANE_IDLE) &&
		    lane->pause_ns < least)
			least = lane->pause_ns;
	return least < INT64_MAX ? least : LONGEST_PAUSE_NS;
}

/* -- restoring ---------------------------------------------------------------------- */

/* Everything is restored, whatever the grant says; also what a lane gets that has nothing so far.
 */
static void restore(const struct gl_grant *grant)
{
	(void)grant;
	for_each_lane(lane)
		lane_begin_restoring(lane);
}

static void stop(void)
{
	for_each_lane(lane)
		lane_stop(lane);
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
		lanes_named(amounts, lane_preload);
}

static void evict(const struct gl_memory *amounts)
{
	if (swap_used())
		swap_store->expect(lanes_named(amounts, lane_evict));
}

static void evict_all(void)
{
	uint64_t copies = 0;

	if (!swap_used())
		return;
	for_each_lane(lane)
		if (lane->asked)
			copies += lane_evict(lane, UINT64_MAX);
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
    .prepare = copy_space_prepare,
    .step = step,
    .pause_ns = pause_ns,
    .stop = stop,
    .link_sample = link_sample,
};
