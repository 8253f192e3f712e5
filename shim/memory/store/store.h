/* store.h: where the bytes of segments are while they are not on a device. */
#ifndef GPU_LEASE_STORE_H
#define GPU_LEASE_STORE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Host memory for the bytes of one segment, in their order. Mostly it is one part. */
struct copy {
	const struct store *store; /* that it belongs to */
	unsigned int n;
	struct part {
		char *at;
		size_t size; /* bytes */
	} parts[];
};

enum store_answer {
	STORE_READY,
	STORE_LATER, /* host memory is being made ready: ask again */
	STORE_NONE   /* there is no host memory */
};

/* The client thread calls these functions; threads that free memory call `give`, and a thread whose
 * context ends calls `pin`, `give` and `context_ends`. Amounts are bytes. */
struct store {
	/* Takes host memory for a segment of that size; READY: *out is set. A context is current.
	 */
	enum store_answer (*take)(size_t size, struct copy **out);
	/* Frees it. */
	void (*give)(struct copy *copy);
	/* Pins a part of a copy again if it was unpinned. A context is current. */
	void (*pin)(const struct part *part);
	/* Gets host memory until so much of it is free, and returns how much is. */
	uint64_t (*grow)(uint64_t bytes);
	/* The same, since it will be needed soon: the pages are made by several threads. */
	void (*expect)(uint64_t bytes);
	/* The store shall have so much in total, free or not, as soon as the node can give it. */
	void (*keep_total)(uint64_t bytes);
	/* One step of making that memory ready, with a context current. READY: there was something
	 * to do; LATER: other threads or the daemon are at work; NONE: all is ready. */
	enum store_answer (*prepare)(void);
	/* How much is free and ready to be copied to. */
	uint64_t (*ready)(void);
	/* Can memory be given up: such as the driver refuses, or so that the store still has so
	 * much in total? */
	bool (*excess)(uint64_t keep);
	/* Gives up some of it, with a context current. */
	void (*trim)(uint64_t keep);
	/* Sets the size of the largest segment. */
	void (*set_piece)(size_t piece);
	/* The context, which is current, is about to end. */
	void (*context_ends)(CUcontext context);
};

extern const struct store *swap_store;  /* the one in use */
extern const struct store pinned_store; /* in pinned host memory; nothing else so far */

#endif
