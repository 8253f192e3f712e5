/* store.h: where the bytes of segments are while they are not on a device. */
#ifndef GPU_LEASE_STORE_H
#define GPU_LEASE_STORE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room in the host's memory for a segment's bytes, in order: mostly one part. */
struct copy {
	const struct store *store; /* which takes it back */
	unsigned int n;
	struct part {
		char *at;
		size_t size;
	} parts[];
};

enum store_answer {
	STORE_READY,
	STORE_LATER, /* room is being made ready: ask again */
	STORE_NONE   /* there is no room */
};

/* Called by the client thread, and by threads that free memory or end a context. */
struct store {
	enum store_answer (*take)(size_t size, struct copy **out);
	void (*give)(struct copy *copy); /* takes the copy's room back */
	void (*pin)(
	    const struct copy *copy); /* pins it again where the end of a context has undone that */
	uint64_t (*grow)(
	    uint64_t bytes); /* until so much is free, if possible; returns how much is */
	void (*expect)(uint64_t bytes); /* so much will be asked for soon: prepare it */
	/* There shall be so much in all, as far as the node has it, some time: nobody waits. */
	void (*ahead)(uint64_t bytes);
	/* One step of both, with a context current. LATER: others are at it; NONE: it is done. */
	enum store_answer (*prepare)(void);
	bool (*excess)(uint64_t keep);           /* is more than so much kept without need? */
	void (*trim)(uint64_t keep);             /* gives some of that up, with a context current */
	void (*shape)(size_t piece);             /* the size of the largest segment */
	void (*context_ends)(CUcontext context); /* the context is current */
};

extern const struct store *swap_store;  /* where segments go */
extern const struct store pinned_store; /* store_pinned.c */

#endif
