/* copier.h: the copies between a device and the host, in a stream of our own.
 *
 * A copier is used only while a context of its device is current and cannot end: by the client
 * thread within contexts_with(), and by a thread of the program whose context ends
 * (lanes_context_ends()). Both hold LOCK_CONTEXTS.
 */
#ifndef GPU_LEASE_COPIER_H
#define GPU_LEASE_COPIER_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define COPIER_DEPTH 128 /* the most segments that are being copied on a device */

struct copy;
struct segment;

/* The copy of one segment's bytes, out (to the host) or in (to the device). */
struct transfer {
	struct segment *segment;
	CUevent event;   /* behind the copy */
	CUresult result; /* set when the copy has ended */
	bool out;
};

struct copier {
	CUdevice device;
	_Atomic(CUcontext) context; /* of the stream and the events */
	CUstream stream;
	/* Transfers, from `first` on: n of them have begun, of which the first `copied` have ended.
	 * `in_flight` and `copied_bytes` are the bytes of the n and of the `copied`. */
	struct transfer ring[COPIER_DEPTH];
	unsigned int first, n, copied;
	uint64_t in_flight, copied_bytes;
};

/* Makes the copier's stream in the current context. Returns false if that fails, or if the copier
 * has a stream in another context. */
bool copier_prepare(struct copier *copier, CUcontext context);
/* Does the copier have a stream? It is made if it can be. No context is current, and
 * the caller does not hold swap_lock. */
bool copier_can_copy(struct copier *copier);
/* Begins to copy a segment's bytes, which has a copy in a store. After an error nothing of it is
 * under way. */
CUresult copier_begin(struct copier *copier, struct segment *segment, bool out);
/* Looks which transfers have ended; they end in their order. */
void copier_look(struct copier *copier);
/* Takes the first of those that have ended. Returns false if there is none. */
bool copier_take(struct copier *copier, struct transfer *out);
/* Is a segment still being copied to the device? */
bool copier_restores(const struct copier *copier);
/* Destroys the stream, which is idle, and the events. */
void copier_end(struct copier *copier);

#endif
