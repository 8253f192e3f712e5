/* mover.c: bringing everything back, or making room, step by step on all devices.
 *
 * The client thread drives it, and serves messages between two steps.
 */
#include "memory/swap/mover.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/locks.h"
#include "base/wire.h"
#include "driver/devices.h"
#include "gate/gate.h"
#include "memory/swap/copier.h"
#include "memory/swap/deferred_free.h"
#include "memory/swap/devices.h"
#include "memory/swap/hold.h"
#include "memory/swap/segments.h"
#include "memory/swap/step.h"
#include "memory/swap/store.h"
#include "work/captures.h"
#include "work/contexts.h"

#define LONGEST_PAUSE_NS 1000000
#define LAZY_PAUSE_NS 10000000            /* for a preload, which nobody waits for */
#define PREPARE_PAUSE_NS INT64_C(2000000) /* between two slices, so that messages are heard */
#define OTHERS_PAUSE_NS INT64_C(20000000) /* while threads, or the daemon, are at it */

static struct gl_memory later; /* what to preload when the eviction has ended */
/* Of the client thread alone: host memory is got ready, for `expect` or `ahead`; what is there
 * beside what `ahead` wants is given back. */
static bool preparing, spares;
static uint64_t wanted; /* by `ahead` */

static bool anything_for(CUdevice device)
{
	struct swap_device *d = &swap_devices[device];
	bool missing;

	if (!d->asked)
		return false;
	lock_take(&swap_lock);
	missing = d->missing;
	lock_give(&swap_lock);
	return copiers[device].busy || (swap_now.mode == RESTORE && missing) ||
	       (swap_now.mode == PRELOAD && copiers[device].left);
}

static void trim(CUcontext context, void *keep)
{
	(void)context;
	while (swap_store->excess(*(uint64_t *)keep))
		swap_store->trim(*(uint64_t *)keep);
}

/* Gives up host memory for more than there is on all devices. */
static void tidy(void)
{
	uint64_t keep = 0;

	swap_catch_up(false);
	for (int d = 0; d < MAX_DEVICES; d++)
		keep += swap_devices[d].asked ? swap_bytes(d) : 0;
	for (int d = 0; d < MAX_DEVICES && swap_store->excess(keep); d++)
		if (swap_devices[d].asked && contexts_with(d, NULL, trim, &keep))
			break;
}

static void say_what_moved(void)
{
	if (swap_now.moved.out)
		debug("evicted %llu KiB, copied %llu", (unsigned long long)swap_now.moved.out >> 10,
		      (unsigned long long)swap_now.moved.copied_out >> 10);
	if (swap_now.moved.in)
		debug("restored %llu KiB, copied %llu", (unsigned long long)swap_now.moved.in >> 10,
		      (unsigned long long)swap_now.moved.copied_in >> 10);
}

static void nothing_moved(void)
{
	swap_now.moved.out = swap_now.moved.copied_out = 0;
	swap_now.moved.in = swap_now.moved.copied_in = 0;
}

/* Are copies under way, or about to be begun by an eviction? */
static bool moving(void)
{
	bool any = false;

	for (int d = 0; d < MAX_DEVICES; d++)
		any |= copiers[d].n || (swap_now.mode == EVICT && copiers[d].left);
	return any;
}

static void begin_preload(const struct gl_memory *amounts)
{
	nothing_moved();
	swap_now.mode = PRELOAD;
	swap_now.gave_up = false;
	swap_now.pause_ns = SWAP_PAUSE_NS;
	for (uint32_t i = 0; i < amounts->n_devices && i < GL_MAX_DEVICES; i++) {
		CUdevice device = device_of(amounts->devices[i].uuid);

		if (device < 0)
			continue;
		copiers[device].left = amounts->devices[i].bytes;
		copiers[device].room_at = copiers[device].came_at = now_ns();
		lock_take(&swap_lock);
		swap_devices[device].next_in = NULL;
		lock_give(&swap_lock);
	}
}

/* Only segments that have a copy: the others need no time. An eviction is finished first. */
static void preload(const struct gl_memory *amounts)
{
	if (!swap_used() || swap_now.mode == RESTORE)
		return;
	if (swap_now.mode == EVICT)
		later = *amounts;
	else
		begin_preload(amounts);
}

static void end_mode(void)
{
	say_what_moved();
	swap_now.mode = REST;
	if (later.n_devices)
		begin_preload(&later);
	later.n_devices = 0;
}

static bool step(void)
{
	bool busy = false;

	if (!swap_used())
		return false;
	for (int d = 0; d < MAX_DEVICES; d++) {
		struct copier *c = &copiers[d];

		if (!anything_for(d))
			continue;
		c->device = d;
		if (!contexts_with(d, c->context, copier_step, c)) {
			c->busy = false;
			c->left = 0;
			if (swap_now.mode == RESTORE)
				swap_give_up(CUDA_ERROR_INVALID_CONTEXT);
		}
		busy |= c->busy;
	}
	if ((swap_now.mode == EVICT || swap_now.mode == PRELOAD) && !busy)
		end_mode();
	if (moving())
		swap_now.pause_ns = SWAP_PAUSE_NS;
	else if (swap_now.pause_ns < (swap_now.mode == PRELOAD ? LAZY_PAUSE_NS : LONGEST_PAUSE_NS))
		swap_now.pause_ns *= 2;
	if (swap_now.mode == REST && !busy)
		tidy();
	return busy || swap_now.mode == PRELOAD;
}

static int64_t pause_ns(void)
{
	return swap_now.pause_ns;
}

/* Caller holds swap_lock. Segments that stayed because there was no host memory may leave again
 * where there is some now. */
static void unfix(CUdevice device)
{
	struct swap_device *d = &swap_devices[device];
	uint64_t room = d->fixed ? swap_store->grow(d->fixed) : 0;

	for (struct segment *s = d->fixed ? d->oldest : NULL; s; s = s->newer) {
		if (!s->fixed || s->block->shared || s->size > room)
			continue;
		room -= s->size;
		segment_fix(s, false);
	}
}

static void restore(const struct gl_grant *grant)
{
	(void)grant; /* everything comes back, whatever it says */
	later.n_devices = 0;
	swap_now.mode = RESTORE;
	swap_now.gave_up = false;
	nothing_moved();
	swap_now.pause_ns = SWAP_PAUSE_NS;
	lock_take(&swap_lock);
	for (int d = 0; d < MAX_DEVICES; d++) {
		copiers[d].left = 0;
		copiers[d].room_at = copiers[d].came_at = now_ns();
		swap_devices[d].next_in = NULL;
		unfix(d);
	}
	lock_give(&swap_lock);
}

static bool restored(void)
{
	if (!swap_hold(swap_now.gave_up))
		return false;
	say_what_moved();
	swap_now.mode = REST;
	return true;
}

static struct moved brought(void)
{
	return (struct moved){swap_now.moved.copied_in, 0};
}

/* Of the oldest segments, as many as are to leave: the bytes that have no copy. */
static uint64_t first_copies(CUdevice device, uint64_t left)
{
	uint64_t bytes = 0;

	lock_take(&swap_lock);
	for (struct segment *s = swap_devices[device].oldest; s && left; s = s->newer) {
		if (s->state != SEGMENT_RESIDENT)
			continue;
		if (!s->copy && s->calls != gate_submitted())
			bytes += s->size;
		left -= s->size < left ? s->size : left;
	}
	lock_give(&swap_lock);
	return bytes;
}

static void begin_evict(void)
{
	later.n_devices = 0;
	if (swap_now.mode == EVICT) /* in addition to what is leaving already */
		return;
	nothing_moved();
	swap_now.mode = EVICT;
	for (int d = 0; d < MAX_DEVICES; d++)
		copiers[d].left = 0;
}

/* Returns the bytes for which there is no copy yet. */
static uint64_t evict_from(CUdevice device, uint64_t bytes)
{
	struct copier *c = &copiers[device];
	uint64_t copies = first_copies(device, bytes);

	lock_take(&swap_lock);
	unfix(device);
	swap_devices[device].next_out = swap_devices[device].oldest;
	lock_give(&swap_lock);
	c->left = bytes > UINT64_MAX - c->left ? UINT64_MAX : c->left + bytes;
	c->busy = true;
	return copies;
}

static void evict(const struct gl_memory *amounts)
{
	uint64_t copies = 0;

	if (!swap_used())
		return;
	begin_evict();
	for (uint32_t i = 0; i < amounts->n_devices && i < GL_MAX_DEVICES; i++) {
		CUdevice device = device_of(amounts->devices[i].uuid);

		if (device >= 0)
			copies += evict_from(device, amounts->devices[i].bytes);
	}
	swap_store->expect(copies);
}

static void leave(void)
{
	uint64_t copies = 0;

	if (!swap_used())
		return;
	begin_evict();
	for (int d = 0; d < MAX_DEVICES; d++)
		if (swap_devices[d].asked)
			copies += evict_from(d, UINT64_MAX);
	swap_store->expect(copies);
}

static void expect(const struct gl_memory *amounts)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < amounts->n_devices && i < GL_MAX_DEVICES; i++) {
		CUdevice device = device_of(amounts->devices[i].uuid);

		if (device >= 0)
			bytes += first_copies(device, amounts->devices[i].bytes);
	}
	swap_store->expect(bytes);
	preparing = bytes > 0;
	spares = false;
}

/* Nobody waits for it: it is got ready, or given back, a slice at a time. */
static void ahead(const struct gl_memory *amounts)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < amounts->n_devices && i < GL_MAX_DEVICES; i++)
		if (device_of(amounts->devices[i].uuid) >= 0)
			bytes += amounts->devices[i].bytes;
	debug("host memory: %llu KiB ahead", (unsigned long long)bytes >> 10);
	spares = bytes < wanted;
	wanted = bytes;
	swap_store->ahead(bytes);
	preparing = true;
}

static void prepare_one(CUcontext context, void *out)
{
	enum store_answer *answer = out;

	(void)context;
	*answer = swap_store->prepare();
	if (*answer != STORE_NONE || !spares)
		return;
	spares = swap_store->excess(wanted);
	if (spares) {
		swap_store->trim(wanted);
		*answer = STORE_READY;
	}
}

/* Threads of the store touch the pages; pinning them takes a context, and may not break a capture
 * that the program makes meanwhile. */
static int64_t prepare(void)
{
	enum store_answer answer = STORE_NONE;
	CUstreamCaptureMode mode;

	if (!preparing)
		return -1;
	mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	for (int d = 0; d < MAX_DEVICES && answer == STORE_NONE; d++)
		if (swap_devices[d].asked)
			contexts_with(d, NULL, prepare_one, &answer);
	captures_mode(mode);
	preparing = answer != STORE_NONE;
	if (!preparing)
		return -1;
	return answer == STORE_READY ? PREPARE_PAUSE_NS : OTHERS_PAUSE_NS;
}

/* Copies in flight finish. */
static void stop(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		copiers[d].left = 0;
	if (swap_now.mode != REST)
		say_what_moved();
	later.n_devices = 0;
	swap_now.mode = REST;
}

const struct mover swap_mover = {
    .restore = restore,
    .restored = restored,
    .let_go = swap_let_go,
    .evict = evict,
    .leave = leave,
    .preload = preload,
    .expect = expect,
    .ahead = ahead,
    .prepare = prepare,
    .step = step,
    .pause_ns = pause_ns,
    .stop = stop,
    .brought = brought,
};
