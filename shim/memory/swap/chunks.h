/* chunks.h: host memory in chunks, of the first store. */
#ifndef GPU_LEASE_CHUNKS_H
#define GPU_LEASE_CHUNKS_H

#include "base/locks.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHUNK_UNIT (UINT64_C(2) << 20) /* a huge page */
#define CHUNK_SLICES 8                 /* of a chunk at most, each registered by itself */

struct chunk {
	struct chunk *next;
	char *base;
	size_t size;
	uint64_t number; /* of memory that is not the process' own, */
	/* and who is told of its end, with chunks_lock; NULL: it is its own */
	void (*unmapped)(const struct chunk *chunk);
	CUcontext contexts[CHUNK_SLICES];    /* that a slice was registered in; NULL: it is not */
	bool undone;                         /* some slice was, in a context that has ended */
	atomic_size_t next_touch, untouched; /* units */
	size_t n, n_free;                    /* units */
	uint64_t used[];
};

extern struct chunk *chunks; /* the newest first */
extern struct lock chunks_lock;

bool chunk_add(size_t piece);    /* of that size; false: the host has no memory */
uint64_t chunks_untouched(void); /* bytes that have no pages yet */
void chunks_context_ends(CUcontext context);
/* Caller holds chunks_lock: */
struct chunk *chunk_map(int descriptor, size_t size); /* of a file; NULL: it cannot be */
uint64_t chunks_free(void);
uint64_t chunks_bytes(void);
struct chunk *chunk_of(const void *at);
void chunk_end(struct chunk *chunk);

#endif
