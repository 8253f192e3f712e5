/* copier.h: what moves on each device, for copier.c, evict.c, restore.c and mover.c.
 *
 * A copier is touched with contexts_with() or in swap_context_ends() only, so no
 * context ends meanwhile.
 */
#ifndef GPU_LEASE_COPIER_H
#define GPU_LEASE_COPIER_H

#include "memory/swap/swap.h"

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

/* copier.c */
void copier_step(CUcontext context, void *copier);
/* The bytes of a segment that has a copy, on the stream. */
CUresult copier_copy(struct copier *copier, struct segment *segment, bool out);
/* They have been put there: they have moved when the event behind them has happened. */
CUresult copier_push(struct copier *copier, struct segment *segment, bool out);
/* What was begun with a segment is over: it has left; it has come; it need not leave any
 * more, and its copy is good; its bytes stay where they are. */
void segment_evicted(struct segment *segment, enum segment_state state);
void segment_restored(struct segment *segment);
void segment_not_evicted(struct segment *segment);
void segment_stays(struct segment *segment, const char *why);

/* evict.c */
bool evict_one(struct copier *copier);     /* false: nothing more now */
void evict_nothing(struct copier *copier); /* nothing can be copied */

/* restore.c */
bool restore_some(struct copier *copier); /* false: nothing more now */
void swap_give_up(CUresult error);        /* what is away cannot be brought back */

#endif
