/* copier.h: what moves on each device.
 *
 * A copier is touched with contexts_with() or in steps_context_ends() only, so no
 * context ends meanwhile.
 */
#ifndef GPU_LEASE_COPIER_H
#define GPU_LEASE_COPIER_H

#include "memory/swap/devices.h"

#define SWAP_DEPTH 128  /* segments that move on a device */
#define SWAP_AT_ONCE 64 /* segments that are begun with in a step */
#define SWAP_PAUSE_NS 50000

struct transfer {
	struct segment *segment;
	CUevent event;
	CUresult result; /* once it has been copied */
	bool out;
};

struct copier {
	CUdevice device;
	_Atomic(CUcontext) context; /* of the stream and the events */
	CUstream stream;
	struct transfer ring[SWAP_DEPTH];
	unsigned int first, n, copied; /* of the n, from the first one on */
	uint64_t in_flight, arrived;   /* bytes: of all of them, of those copied */
	/* Of the client thread alone: */
	size_t room; /* of the device when it last changed, and when that was */
	uint64_t room_at;
	uint64_t came_at; /* when something was brought last, or began to be */
	uint64_t left;    /* bytes to evict, or to preload */
	bool busy;        /* after the last step */
};

enum swap_mode { REST, RESTORE, PRELOAD, EVICT };

/* The client thread's; a thread whose context ends reads it, and counts what arrives. */
struct swap_now {
	_Atomic(enum swap_mode) mode;
	atomic_bool gave_up; /* what is away cannot be brought back */
	int64_t pause_ns;
	struct {
		/* Bytes, since the mode was chosen. */
		_Atomic uint64_t out, copied_out, in, copied_in;
	} moved;
};

extern struct copier copiers[MAX_DEVICES];
extern struct swap_now swap_now;

bool copier_prepare(struct copier *copier, CUcontext context); /* false: it has no stream there */
void copier_end(struct copier *copier); /* of its stream, which has nothing to do any more */
/* The bytes of a segment that has a copy, on the stream. */
CUresult copier_copy(struct copier *copier, struct segment *segment, bool out);
/* They have been put there: they have moved when the event behind them has happened. */
CUresult copier_push(struct copier *copier, struct segment *segment, bool out);
void swap_give_up(CUresult error); /* what is away cannot be brought back */

#endif
