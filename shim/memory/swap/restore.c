/* restore.c: restores segments to a lane, the newest first. */
#include "memory/swap/restore.h"

#include "base/clock.h"
#include "base/debug.h"
#include "driver/lookup.h"
#include "memory/swap/lane.h"
#include "memory/swap/moves.h"

/* After this long without progress a restore is tried even if too little memory seems free. */
#define LONGEST_WAIT_NS (UINT64_C(50) * 1000000)
/* How long after a release the driver may need until the memory can be allocated again. */
#define WIPE_NS (UINT64_C(3) * 1000000)

/* The gate opens all the same: the program's next call returns what is wrong with its context. */
void restore_failed(struct lane *lane, CUresult error)
{
	if (!lane->restore_failed)
		complain(
		    "swapped memory cannot be restored to the GPU (CUDA error %d), so calls that "
		    "use it fail; start the job again, and if that does not help, ask the "
		    "administrator to look at the node's GPU (dmesg)",
		    (int)error);
	lane->restore_failed = true;
}

/* How many bytes may be restored now; at most a piece. The driver wipes released memory before
 * another process can have it, and a process that allocates it too early waits for much longer than
 * the wiping takes. So one piece of the free memory is left alone, unless the number of free bytes
 * has not changed for WIPE_NS, or nothing was restored for LONGEST_WAIT_NS. */
static uint64_t restorable_bytes(struct lane *lane)
{
	uint64_t piece = lane->piece, now = now_ns();
	size_t free_bytes, total;

	if (lane->copier.in_flight > piece || lane->copier.n > COPIER_DEPTH / 2)
		return 0;
	if (REAL(cuMemGetInfo_v2)(&free_bytes, &total))
		return piece;
	if (free_bytes != lane->free_bytes)
		lane->free_since = now;
	lane->free_bytes = free_bytes;
	if (free_bytes >= 2 * piece || now - lane->free_since >= WIPE_NS ||
	    now - lane->restored_at >= LONGEST_WAIT_NS)
		return piece;
	return free_bytes > piece ? free_bytes - piece : 0;
}

static void copy_in(struct lane *lane, struct segment *segment)
{
	CUresult result = copier_begin(&lane->copier, segment, false);

	if (!result) {
		lane->moved.copied_to_device += segment->size;
		return;
	}
	restore_failed(lane, result);
	move_end_out(segment, SEGMENT_AWAY);
}

bool restore_some(struct lane *lane)
{
	struct segment *some[MOVES_AT_ONCE];
	CUresult result = CUDA_SUCCESS;
	uint64_t most = restorable_bytes(lane);
	unsigned int n;

	if (!most)
		return false;
	if (lane->mode == LANE_PRELOADING && most > lane->bytes_left)
		most = lane->bytes_left;
	n = moves_begin_in(lane, most, some, &result);
	for (unsigned int i = 0; i < n; i++) {
		if (some[i]->state == SEGMENT_AWAY)
			copy_in(lane, some[i]);
		else
			move_end_in(some[i]);
	}
	if (n) {
		lane->restored_at = now_ns();
		lane->pause_ns = LANE_PAUSE_NS / 2; /* it is doubled after each step */
	}
	if (result && result != CUDA_ERROR_OUT_OF_MEMORY)
		restore_failed(lane, result);
	return n && !result;
}
