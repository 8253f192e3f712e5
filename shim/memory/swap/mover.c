/* mover.c: the mover of swapped memory: evicts, restores and preloads segments on all devices.
 *
 * The client thread calls it, and hears the daemon between two steps.
 */
#include "memory/swap/mover.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/locks.h"
#include "base/wire.h"
#include "channels/channels.h"
#include "driver/devices.h"
#include "memory/swap/copier.h"
#include "memory/swap/copy_space.h"
#include "memory/swap/deferred_free.h"
#include "memory/swap/devices.h"
#include "memory/swap/evict.h"
#include "memory/swap/residency.h"
#include "memory/swap/step.h"
#include "memory/swap/store.h"
#include "work/contexts.h"

#define LONGEST_PAUSE_NS 1000000
#define PRELOAD_PAUSE_NS 10000000 /* the longest pause in a preload, which nobody waits for */

static struct gl_memory next_preload; /* begins when the eviction has ended; n_devices 0: none */

static void report_moved(void)
{
	if (swap_progress.moved.evicted)
		debug("evicted %llu KiB, copied %llu",
		      (unsigned long long)swap_progress.moved.evicted >> 10,
		      (unsigned long long)swap_progress.moved.copied_to_host >> 10);
	if (swap_progress.moved.restored)
		debug("restored %llu KiB, copied %llu",
		      (unsigned long long)swap_progress.moved.restored >> 10,
		      (unsigned long long)swap_progress.moved.copied_to_device >> 10);
}

static void reset_moved(void)
{
	swap_progress.moved.evicted = swap_progress.moved.copied_to_host = 0;
	swap_progress.moved.restored = swap_progress.moved.copied_to_device = 0;
}

/* -- preloading ------------------------------------------------------------------- */

static void begin_preload(const struct gl_memory *amounts)
{
	reset_moved();
	swap_progress.mode = SWAP_PRELOADING;
	swap_progress.restore_failed = false;
	swap_progress.pause_ns = SWAP_PAUSE_NS;
	for (uint32_t i = 0; i < amounts->n_devices && i < GL_MAX_DEVICES; i++) {
		CUdevice device = device_of(amounts->devices[i].uuid);

		if (device < 0)
			continue;
		copiers[device].bytes_left = amounts->devices[i].bytes;
		copiers[device].free_since = copiers[device].restored_at = now_ns();
		lock_take(&swap_lock);
		swap_devices[device].restore_cursor = NULL;
		lock_give(&swap_lock);
	}
}

/* Restores only segments that have a copy; the others need no time. An eviction ends first. */
static void preload(const struct gl_memory *amounts)
{
	if (!swap_used() || swap_progress.mode == SWAP_RESTORING)
		return;
	if (swap_progress.mode == SWAP_EVICTING)
		next_preload = *amounts;
	else
		begin_preload(amounts);
}

/* -- steps -------------------------------------------------------------------------- */

static bool device_needs_step(CUdevice device)
{
	struct swap_device *d = &swap_devices[device];
	bool missing;

	if (!d->asked)
		return false;
	lock_take(&swap_lock);
	missing = d->missing;
	lock_give(&swap_lock);
	return copiers[device].busy || (swap_progress.mode == SWAP_RESTORING && missing) ||
	       (swap_progress.mode == SWAP_PRELOADING && copiers[device].bytes_left);
}

/* Have copies begun, or will an eviction begin some? */
static bool copies_run(void)
{
	bool any = false;

	for (int d = 0; d < MAX_DEVICES; d++)
		any |=
		    copiers[d].n || (swap_progress.mode == SWAP_EVICTING && copiers[d].bytes_left);
	return any;
}

static void end_mode(void)
{
	report_moved();
	swap_progress.mode = SWAP_IDLE;
	if (next_preload.n_devices)
		begin_preload(&next_preload);
	next_preload.n_devices = 0;
}

/* Returns true if the device has more to do. */
static bool step_device(CUdevice device)
{
	struct copier *c = &copiers[device];

	c->device = device;
	if (!contexts_with(device, c->context, copier_step, c)) {
		c->busy = false;
		c->bytes_left = 0;
		if (swap_progress.mode == SWAP_RESTORING)
			swap_restore_failed(CUDA_ERROR_INVALID_CONTEXT);
	}
	return c->busy;
}

static void choose_pause(void)
{
	int64_t longest =
	    swap_progress.mode == SWAP_PRELOADING ? PRELOAD_PAUSE_NS : LONGEST_PAUSE_NS;

	if (copies_run())
		swap_progress.pause_ns = SWAP_PAUSE_NS;
	else if (swap_progress.pause_ns < longest)
		swap_progress.pause_ns *= 2;
}

static bool step(void)
{
	bool busy = false;

	if (!swap_used())
		return false;
	for (int d = 0; d < MAX_DEVICES; d++)
		if (device_needs_step(d))
			busy |= step_device(d);
	if ((swap_progress.mode == SWAP_EVICTING || swap_progress.mode == SWAP_PRELOADING) && !busy)
		end_mode();
	choose_pause();
	if (swap_progress.mode == SWAP_IDLE && !busy && channels_stop_phase() == STOP_NONE) {
		swap_free_deferred(false);
		copy_space_trim();
	}
	return busy || swap_progress.mode == SWAP_PRELOADING;
}

static int64_t pause_ns(void)
{
	return swap_progress.pause_ns;
}

/* -- restoring ---------------------------------------------------------------------- */

/* Everything is restored, whatever the grant says. */
static void restore(const struct gl_grant *grant)
{
	(void)grant;
	next_preload.n_devices = 0;
	swap_progress.mode = SWAP_RESTORING;
	swap_progress.restore_failed = false;
	reset_moved();
	swap_progress.pause_ns = SWAP_PAUSE_NS;
	lock_take(&swap_lock);
	for (int d = 0; d < MAX_DEVICES; d++) {
		copiers[d].bytes_left = 0;
		copiers[d].free_since = copiers[d].restored_at = now_ns();
		swap_devices[d].restore_cursor = NULL;
		evict_unfix(d);
	}
	lock_give(&swap_lock);
}

static bool restore_finished(void)
{
	if (!residency_begin(swap_progress.restore_failed))
		return false;
	report_moved();
	swap_progress.mode = SWAP_IDLE;
	return true;
}

static struct link_sample link_sample(void)
{
	return (struct link_sample){swap_progress.moved.copied_to_device, 0};
}

/* -- evicting ------------------------------------------------------------------------- */

/* An eviction that runs already goes on, and what is asked for now is added to it. */
static void begin_evicting(void)
{
	next_preload.n_devices = 0;
	if (swap_progress.mode == SWAP_EVICTING)
		return;
	reset_moved();
	swap_progress.mode = SWAP_EVICTING;
	for (int d = 0; d < MAX_DEVICES; d++)
		copiers[d].bytes_left = 0;
}

static void evict(const struct gl_memory *amounts)
{
	uint64_t copies = 0;

	if (!swap_used())
		return;
	begin_evicting();
	for (uint32_t i = 0; i < amounts->n_devices && i < GL_MAX_DEVICES; i++) {
		CUdevice device = device_of(amounts->devices[i].uuid);

		if (device >= 0)
			copies += evict_add(device, amounts->devices[i].bytes);
	}
	swap_store->expect(copies);
}

static void evict_all(void)
{
	uint64_t copies = 0;

	if (!swap_used())
		return;
	begin_evicting();
	for (int d = 0; d < MAX_DEVICES; d++)
		if (swap_devices[d].asked)
			copies += evict_add(d, UINT64_MAX);
	swap_store->expect(copies);
}

/* Copies that have begun finish by themselves. */
static void stop(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		copiers[d].bytes_left = 0;
	if (swap_progress.mode != SWAP_IDLE)
		report_moved();
	next_preload.n_devices = 0;
	swap_progress.mode = SWAP_IDLE;
}

const struct mover swap_mover = {
    .restore = restore,
    .restore_finished = restore_finished,
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
