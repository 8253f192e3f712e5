/* chunks.h: host memory for copies, in chunks of equal size, and the units of which copies are
 * made.
 *
 * A chunk is mapped. Then its pages are made, and registered with the driver (chunk_pages.h).
 */
#ifndef GPU_LEASE_CHUNKS_H
#define GPU_LEASE_CHUNKS_H

#include "base/locks.h"
#include "memory/store/store.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHUNK_UNIT (UINT64_C(2) << 20) /* bytes: a huge page */
#define CHUNK_SLICES 8                 /* the most slices of a chunk (chunk_pages.h) */

struct chunk {
	struct chunk *next;
	char *base;
	size_t size; /* bytes, a multiple of CHUNK_UNIT */
	/* For memory of the node: its number with the daemon, and the function to call, with
	 * chunks_lock held, once it is unmapped. NULL: memory of the process itself. */
	uint64_t number;
	void (*unmapped)(const struct chunk *chunk);
	/* The context in which each slice is registered with the driver; NULL: it is not. */
	CUcontext contexts[CHUNK_SLICES];
	bool refused;        /* for a copy not all of it could be registered */
	bool lost_pins;      /* a context has ended in which a slice was registered, or it rests */
	unsigned int needed; /* rest.c: a bit for each slice */
	/* Units: the next one that a thread shall touch, and how many are not touched yet. */
	atomic_size_t next_touch, untouched;
	size_t n, n_free; /* units in total, and those without bytes of a copy */
	uint64_t used[];  /* a bit for each unit */
};

extern struct chunk *chunks;    /* the newest comes first */
extern struct lock chunks_lock; /* guards the list and all chunks but their atomic fields */

/* -- any thread, without chunks_lock -------------------------------------------- */

/* Adds a chunk of the process's own memory, at least `size` bytes. Returns false if the host has
 * no memory for it. */
bool chunk_add(size_t size);
/* Bytes of all chunks whose pages do not exist yet. */
uint64_t chunks_untouched(void);

/* -- any thread, with chunks_lock ------------------------------------------------ */

/* Adds a chunk that maps `size` bytes of a file. Returns NULL if mapping fails. */
struct chunk *chunk_map(int descriptor, size_t size);
/* Bytes of all chunks: those without bytes of a copy, and the total. */
uint64_t chunks_free(void);
uint64_t chunks_bytes(void);
/* The chunk that the address lies in, or NULL. */
struct chunk *chunk_of(const void *at);
/* Takes the chunk out of the list. */
void chunk_leave(struct chunk *chunk);
/* Units of one slice; the last slice may have fewer. */
size_t chunk_slice(const struct chunk *chunk);
/* The number of the slice that the address lies in. */
size_t chunk_slice_of(const struct chunk *chunk, const char *at);
/* The number of the first slice that is not registered. */
size_t chunk_next_slice(const struct chunk *chunk);
/* Are all slices registered? Is any? */
bool chunk_pinned(const struct chunk *chunk);
bool chunk_pinned_any(const struct chunk *chunk);
/* Free units in which copies can be made at once: of chunks that are pinned, all of whose pages
 * exist. */
size_t units_ready(void);
/* A chunk with free units that is not ready, or NULL. */
struct chunk *units_first_unready(void);
/* Makes a copy of `size` bytes of ready units, of which there are enough; its store is not set.
 * Returns NULL if malloc() fails. */
struct copy *units_take(size_t size);
/* The copy does not need its units any more. */
void units_give(const struct copy *copy);

#endif
