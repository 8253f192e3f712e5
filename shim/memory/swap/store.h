/* store.h: where the bytes of segments are while they are not on a device. */
#ifndef GPU_LEASE_STORE_H
#define GPU_LEASE_STORE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room in the host's memory for a segment's bytes, in order: mostly one part. */
struct copy {
	const struct store *store; /* that it is given back to */
	unsigned int n;
	struct part {
		char *at;
		size_t size;
	} parts[];
};

enum store_answer {
	STORE_READY,
	STORE_LATER, /* it is being made ready: ask again */
	STORE_NONE   /* there is none */
};

/* The client thread asks, and threads that free memory or end a context. */
struct store {
	enum store_answer (*take)(size_t size, struct copy **out);
	void (*give)(struct copy *copy);      /* back */
	void (*pin)(const struct copy *copy); /* again, where a context's end undid it */
	uint64_t (*grow)(uint64_t bytes); /* to so much that is free, if that can be; how much is */
	void (*expect)(uint64_t bytes);   /* so much will be asked for: be ready */
	bool (*prepare)(void); /* a step of that, with a context current; false: all is done */
	bool (*excess)(uint64_t keep);           /* is there more than so much? */
	void (*trim)(uint64_t keep);             /* to so much, with a context current */
	void (*shape)(size_t piece);             /* no segment is larger */
	void (*context_ends)(CUcontext context); /* which is current */
};

extern const struct store *swap_store;  /* where segments go */
extern const struct store pinned_store; /* store_pinned.c */

#endif
