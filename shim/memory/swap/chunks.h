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

struct chunk {
	struct chunk *next;
	char *base;
	size_t size;
	uint64_t number; /* of memory that is not the process' own, */
	/* and who is told of its end, with chunks_lock; NULL: it is its own */
	void (*unmapped)(const struct chunk *chunk);
	CUcontext context; /* that it was registered in; NULL: not registered */
	bool undone;
	atomic_size_t next_touch, untouched; /* units */
	size_t n, n_free;                    /* units */
	uint64_t used[];
};

extern struct chunk *chunks; /* the newest first */
extern struct lock chunks_lock;

bool chunk_add(size_t piece);    /* of that size; false: the host has no memory */
uint64_t chunks_untouched(void); /* bytes that have no pages yet */
void chunks_start_helpers(void); /* threads that touch the pages of new chunks */
bool chunks_helped(void);        /* some of these threads run; no chunk may end meanwhile */
void chunk_touch(struct chunk *chunk);
void chunks_context_ends(CUcontext context);
void chunks_touch_much(void); /* by such threads, unless it is little */
/* Caller holds chunks_lock: */
struct chunk *chunk_map(int descriptor, size_t size); /* of a file; NULL: it cannot be */
uint64_t chunks_free(void);
/* Pins the chunk for every context. False: that fails. */
bool chunk_register(struct chunk *chunk);
bool chunks_undone(void); /* some chunks were registered in a context that has ended */
struct chunk *chunk_of(const void *at);
void chunk_end(struct chunk *chunk);

#endif
