/* chunk_units.h: the units of chunks, from which copies are made. The caller holds chunks_lock. */
#ifndef GPU_LEASE_CHUNK_UNITS_H
#define GPU_LEASE_CHUNK_UNITS_H

#include "memory/swap/chunks.h"
#include "memory/swap/store.h"

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
