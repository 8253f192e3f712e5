/* copier.h: what moves on each device.
 *
 * A copier is touched with contexts_with() or in steps_context_ends() only, so no
 * context ends meanwhile.
 */
#ifndef GPU_LEASE_COPIER_H
#define GPU_LEASE_COPIER_H

#include "memory/swap/devices.h"

#define SWAP_DEPTH 128  /* segments that are copied on a device at once */
#define SWAP_AT_ONCE 64 /* segments that one step begins to copy */
#define SWAP_PAUSE_NS 50000

struct transfer {
	struct segment *segment;
	CUevent event;
	CUresult result; /* set once it has been copied */
	bool out;
};

struct copier {
	CUdevice device;
	_Atomic(CUcontext) context; /* of the stream and the events */
	CUstream stream;
	struct transfer ring[SWAP_DEPTH];
	unsigned int first, n, copied; /* how many of the n have been copied, from the first on */
	uint64_t in_flight, arrived;   /* bytes of all of them, and of those that are copied */
	/* Of the client thread alone: */
	size_t room; /* free on the device when that last changed, and the time of that change */
	uint64_t room_at;
	uint64_t came_at;            /* when something was brought back last, or that began */
	uint64_t left;               /* bytes to evict, or to preload */
	bool busy;                   /* after the last step */
	_Atomic uint64_t left_clean; /* bytes that left and were not copied, since last said */
};

enum swap_mode { REST, RESTORE, PRELOAD, EVICT };

/* Written by the client thread. A thread whose context ends reads it, and counts what arrives. */
struct swap_now {
	_Atomic(enum swap_mode) mode;
	atomic_bool gave_up; /* memory that is away cannot be brought back */
	int64_t pause_ns;
	struct {
		/* Bytes, since the mode was chosen. */
		_Atomic uint64_t out, copied_out, in, copied_in;
	} moved;
};

extern struct copier copiers[MAX_DEVICES];
extern struct swap_now swap_now;

bool copier_prepare(struct copier *copier,
                    CUcontext context); /* false: its stream is in another context */
void copier_end(struct copier *copier); /* ends its stream, which is idle */
/* Puts the copies of a segment's bytes on the stream; the segment has room in a store. */
CUresult copier_copy(struct copier *copier, struct segment *segment, bool out);
/* Puts an event behind them: the bytes have been copied when it has happened. */
CUresult copier_push(struct copier *copier, struct segment *segment, bool out);
void swap_give_up(CUresult error); /* memory that is away cannot be brought back */

#endif
