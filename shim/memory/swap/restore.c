/* restore.c: restores segments to a device, the newest first. */
#include "memory/swap/restore.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "memory/swap/copier.h"
#include "memory/swap/devices.h"
#include "memory/swap/segments.h"
#include "memory/swap/transfers.h"

/* After this long without progress a restore is tried even if too little memory seems free. */
#define LONGEST_WAIT_NS (UINT64_C(50) * 1000000)
/* How long after a release the driver may need until the memory can be allocated again. */
#define WIPE_NS (UINT64_C(3) * 1000000)

static bool is_missing(const struct segment *segment)
{
	return !segment->moving &&
	       (segment->state == SEGMENT_AWAY ||
	        (segment->state == SEGMENT_ABSENT && swap_progress.mode == SWAP_RESTORING));
}

/* The caller holds swap_lock. Finds the newest missing segment, and older ones to which one call
 * can give access together with it; no more than `most` bytes. Returns how many. */
static unsigned int next_missing(struct swap_device *d, uint64_t most,
                                 struct segment *some[SWAP_AT_ONCE])
{
	struct segment *s = d->restore_cursor ? d->restore_cursor : d->newest;
	unsigned int n = 0;

	while (s && !is_missing(s))
		s = s->older;
	d->restore_cursor = s;
	while (s && n < SWAP_AT_ONCE && is_missing(s) && s->size <= most) {
		most -= s->size;
		some[n++] = s;
		s = segment_joins_older(s) ? s->older : NULL;
	}
	return n;
}

/* How many bytes may be restored now; at most a piece. The driver wipes released memory before
 * another process can have it, and a process that allocates it too early waits for much longer than
 * the wiping takes. So one piece of the free memory is left alone, unless the number of free bytes
 * has not changed for WIPE_NS, or nothing was restored for LONGEST_WAIT_NS. */
static uint64_t restorable_bytes(struct copier *c)
{
	uint64_t piece = swap_devices[c->device].piece, now = now_ns();
	size_t free_bytes, total;

	if (c->in_flight > piece || c->n > SWAP_DEPTH / 2)
		return 0;
	if (REAL(cuMemGetInfo_v2)(&free_bytes, &total))
		return piece;
	if (free_bytes != c->free_bytes)
		c->free_since = now;
	c->free_bytes = free_bytes;
	if (free_bytes >= 2 * piece || now - c->free_since >= WIPE_NS ||
	    now - c->restored_at >= LONGEST_WAIT_NS)
		return piece;
	return free_bytes > piece ? free_bytes - piece : 0;
}

static void copy_in(struct copier *c, struct segment *segment)
{
	CUresult result = copier_copy(c, segment, false);

	if (!result)
		result = copier_record(c, segment, false);
	if (!result) {
		swap_progress.moved.copied_to_device += segment->size;
		return;
	}
	REAL(cuStreamSynchronize)(c->stream);
	swap_restore_failed(result);
	transfer_evicted(segment, SEGMENT_AWAY);
}

/* Makes physical memory for some missing segments, at most for so many bytes, and begins their
 * moves. Returns how many; *result says why not more. */
static unsigned int map_some(struct copier *c, uint64_t most, struct segment *some[SWAP_AT_ONCE],
                             CUresult *result)
{
	struct swap_device *d = &swap_devices[c->device];
	struct segment *first = NULL;
	unsigned int n = 0;

	lock_take(&swap_lock);
	if (d->missing > c->n) {
		n = next_missing(d, most, some);
		first = d->restore_cursor;
	}
	if (!first || first->size > c->bytes_left)
		c->bytes_left = 0; /* nothing is missing, or the preload ends before this segment */
	if (n)
		n = segments_map(some[0], n, result);
	if (n)
		d->restore_cursor = some[n - 1]->older;
	for (unsigned int i = 0; i < n; i++) {
		segment_begin_move(some[i]);
		c->bytes_left -= some[i]->size < c->bytes_left ? some[i]->size : c->bytes_left;
	}
	lock_give(&swap_lock);
	return n;
}

bool restore_some(struct copier *c)
{
	struct segment *some[SWAP_AT_ONCE];
	CUresult result = CUDA_SUCCESS;
	uint64_t most = restorable_bytes(c);
	unsigned int n;

	if (!most)
		return false;
	if (swap_progress.mode == SWAP_PRELOADING && most > c->bytes_left)
		most = c->bytes_left;
	n = map_some(c, most, some, &result);
	for (unsigned int i = 0; i < n; i++) {
		if (some[i]->state == SEGMENT_AWAY)
			copy_in(c, some[i]);
		else
			transfer_restored(some[i]);
	}
	if (n) {
		c->restored_at = now_ns();
		swap_progress.pause_ns = SWAP_PAUSE_NS / 2; /* mover.c doubles it after each step */
	}
	if (result && result != CUDA_ERROR_OUT_OF_MEMORY)
		swap_restore_failed(result);
	return n && !result;
}
