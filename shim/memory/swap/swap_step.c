/* swap_step.c: bringing everything back, or making room, step by step on all devices.
 *
 * The client thread drives it, and serves messages between two steps.
 */
#include "memory/swap/swap.h"

#define LONGEST_PAUSE_NS 1000000
#define LAZY_PAUSE_NS 10000000 /* nobody waits for it */

static struct gl_memory later; /* to be preloaded when what leaves has left */
static bool preparing;         /* host memory for what was expected; of the client thread alone */

static bool anything_for(CUdevice device)
{
	struct swap_device *d = &swap_devices[device];
	bool missing;

	if (!d->asked)
		return false;
	lock_take(&swap_lock);
	missing = d->missing;
	lock_give(&swap_lock);
	return movers[device].busy || (swap_now.mode == RESTORE && missing) ||
	       (swap_now.mode == PRELOAD && movers[device].left);
}

static void trim(CUcontext context, void *keep)
{
	(void)context;
	arena_trim(*(uint64_t *)keep);
}

/* Host memory for more than there is on all devices is not needed any more. */
static void tidy(void)
{
	uint64_t keep = 0;

	swap_catch_up(false);
	for (int d = 0; d < MAX_DEVICES; d++)
		keep += swap_devices[d].asked ? swap_bytes(d) : 0;
	for (int d = 0; d < MAX_DEVICES && arena_excess(keep); d++)
		if (swap_devices[d].asked && contexts_with(d, NULL, trim, &keep))
			break;
}

static void report(void)
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

/* Copies are under way, or something is about to be evicted. */
static bool moving(void)
{
	bool any = false;

	for (int d = 0; d < MAX_DEVICES; d++)
		any |= movers[d].n || (swap_now.mode == EVICT && movers[d].left);
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
		movers[device].left = amounts->devices[i].bytes;
		movers[device].room_at = movers[device].came_at = now_ns();
		lock_take(&swap_lock);
		swap_devices[device].next_in = NULL;
		lock_give(&swap_lock);
	}
}

/* Only what has a copy: the rest needs no time. An eviction is finished first. */
void swap_preload(const struct gl_memory *amounts)
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
	report();
	swap_now.mode = REST;
	if (later.n_devices)
		begin_preload(&later);
	later.n_devices = 0;
}

bool swap_step(void)
{
	bool busy = false;

	if (!swap_used())
		return false;
	for (int d = 0; d < MAX_DEVICES; d++) {
		struct mover *m = &movers[d];

		if (!anything_for(d))
			continue;
		m->device = d;
		if (!contexts_with(d, m->context, mover_step, m)) {
			m->busy = false;
			m->left = 0;
			if (swap_now.mode == RESTORE)
				mover_give_up(CUDA_ERROR_INVALID_CONTEXT);
		}
		busy |= m->busy;
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

int64_t swap_pause_ns(void)
{
	return swap_now.pause_ns;
}

/* Some stayed because there was no host memory; there may be now. The lock is held. */
static void unfix(CUdevice device)
{
	struct swap_device *d = &swap_devices[device];
	uint64_t room = d->fixed ? arena_grow(d->fixed) : 0;

	for (struct segment *s = d->fixed ? d->oldest : NULL; s; s = s->newer) {
		if (!s->fixed || s->size > room)
			continue;
		room -= s->size;
		segment_fix(s, false);
	}
}

void swap_restore(void)
{
	later.n_devices = 0;
	swap_now.mode = RESTORE;
	swap_now.gave_up = false;
	nothing_moved();
	swap_now.pause_ns = SWAP_PAUSE_NS;
	lock_take(&swap_lock);
	for (int d = 0; d < MAX_DEVICES; d++) {
		movers[d].left = 0;
		movers[d].room_at = movers[d].came_at = now_ns();
		swap_devices[d].next_in = NULL;
		unfix(d);
	}
	lock_give(&swap_lock);
}

bool swap_restored(void)
{
	if (!swap_hold(swap_now.gave_up))
		return false;
	report();
	swap_now.mode = REST;
	return true;
}

uint64_t swap_copied_in(void)
{
	return swap_now.moved.copied_in;
}

/* Bytes of the oldest segments, as many as are to leave, that have no place in the arena. */
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

void swap_evict(const struct gl_memory *amounts)
{
	bool more = swap_now.mode == EVICT; /* beside what is on its way out already */
	uint64_t bytes = 0;

	if (!swap_used())
		return;
	if (!more)
		nothing_moved();
	later.n_devices = 0;
	swap_now.mode = EVICT;
	for (uint32_t i = 0; i < amounts->n_devices && i < GL_MAX_DEVICES; i++) {
		CUdevice device = device_of(amounts->devices[i].uuid);

		if (device < 0)
			continue;
		bytes += first_copies(device, amounts->devices[i].bytes);
		lock_take(&swap_lock);
		unfix(device);
		swap_devices[device].next_out = swap_devices[device].oldest;
		lock_give(&swap_lock);
		movers[device].left = (more ? movers[device].left : 0) + amounts->devices[i].bytes;
		movers[device].busy = true;
	}
	arena_expect(bytes);
}

void swap_expect(const struct gl_memory *amounts)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < amounts->n_devices && i < GL_MAX_DEVICES; i++) {
		CUdevice device = device_of(amounts->devices[i].uuid);

		if (device >= 0)
			bytes += first_copies(device, amounts->devices[i].bytes);
	}
	arena_expect(bytes);
	preparing = bytes > 0;
}

static void prepare_one(CUcontext context, void *more)
{
	(void)context;
	*(bool *)more = arena_prepare();
}

/* Pages are touched by threads of the arena; to pin them takes a context. */
void swap_prepare(void)
{
	bool more = false;

	for (int d = 0; preparing && d < MAX_DEVICES && !more; d++)
		if (swap_devices[d].asked)
			contexts_with(d, NULL, prepare_one, &more);
	preparing = more;
}

/* What is in flight arrives. */
void swap_stop(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		movers[d].left = 0;
	if (swap_now.mode != REST)
		report();
	later.n_devices = 0;
	swap_now.mode = REST;
}
