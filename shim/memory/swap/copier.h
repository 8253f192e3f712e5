/* copier.h: the copies between each device and the host, and what the mover is doing.
 *
 * Copiers are used only while a context of their device is current and cannot end: by the client
 * thread within contexts_with(), and by a thread of the program whose context ends
 * (steps_context_ends()). Both hold LOCK_CONTEXTS.
 */
#ifndef GPU_LEASE_COPIER_H
#define GPU_LEASE_COPIER_H

#include "memory/swap/devices.h"

#define SWAP_DEPTH 128  /* the most segments that are being copied on a device */
#define SWAP_AT_ONCE 64 /* the most segments whose copies one step begins */
#define SWAP_PAUSE_NS 50000

/* The copy of one segment's bytes, out (to the host) or in (to the device). */
struct transfer {
	struct segment *segment;
	CUevent event;   /* recorded behind the copy */
	CUresult result; /* set when the copy has ended */
	bool out;
};

struct copier {
	CUdevice device;
	_Atomic(CUcontext) context; /* of the stream and the events */
	CUstream stream;
	/* Transfers, from `first` on: n of them have begun, of which the first `copied` have ended.
	 * `in_flight` and `copied_bytes` are the bytes of the n and of the `copied`. */
	struct transfer ring[SWAP_DEPTH];
	unsigned int first, n, copied;
	uint64_t in_flight, copied_bytes;
	/* The rest belongs to the client thread. */
	size_t free_bytes;    /* free memory of the device when it was last asked for, */
	uint64_t free_since;  /* and when, in ns, that number last changed */
	uint64_t restored_at; /* when, in ns, a segment was last mapped, or restoring began */
	uint64_t bytes_left;  /* bytes still to be evicted, or to be preloaded */
	bool busy;            /* the last step left something to do */
	_Atomic uint64_t
	    evicted_clean; /* bytes evicted without a copy since they were last reported */
};

enum swap_mode { SWAP_IDLE, SWAP_RESTORING, SWAP_PRELOADING, SWAP_EVICTING };

/* The client thread writes it. A thread whose context ends reads it, and counts bytes. */
struct swap_progress {
	_Atomic(enum swap_mode) mode;
	atomic_bool restore_failed; /* evicted memory cannot be restored */
	/* Memory stays on a device since it could not be copied, which is tried again. */
	bool stays;
	int64_t pause_ns; /* until the next step */
	/* Bytes since the mode was set: all, and those that had to be copied. */
	struct {
		_Atomic uint64_t evicted, copied_to_host, restored, copied_to_device;
	} moved;
};

extern struct copier copiers[MAX_DEVICES];
extern struct swap_progress swap_progress;

/* Makes the copier's stream in the current context. Returns false if that fails, or if the copier
 * has a stream in another context. */
bool copier_prepare(struct copier *copier, CUcontext context);
/* Does the device's copier have a stream? It is made if it can be. The caller does not hold
 * swap_lock. */
bool copier_can_copy(CUdevice device);
/* Destroys the stream, which is idle, and the events. */
void copier_end(struct copier *copier);
/* Submits the copies of a segment's bytes. The segment has a copy in a store. */
CUresult copier_copy(struct copier *copier, struct segment *segment, bool out);
/* Records an event behind them: once it has happened the bytes are copied. */
CUresult copier_record(struct copier *copier, struct segment *segment, bool out);
/* Evicted memory cannot be restored: says so once, and ends the restore. */
void swap_restore_failed(CUresult error);

#endif
