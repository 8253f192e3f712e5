/* pins.h: a chunk is registered with the driver a slice at a time, so that nobody waits for long
 * meanwhile. A copy of the driver's stays within a slice. Callers hold chunks_lock. */
#ifndef GPU_LEASE_PINS_H
#define GPU_LEASE_PINS_H

#include "memory/swap/chunks.h"

size_t chunk_slice(const struct chunk *chunk); /* units of one slice; the last may have less */
bool chunk_pinned(const struct chunk *chunk);  /* all of it, for every context */
/* The next slice, or all that are left, in the current context. False: that fails. */
bool chunk_pin_slice(struct chunk *chunk);
bool chunk_pin(struct chunk *chunk);
void chunk_unpin(struct chunk *chunk);
void chunk_context_ends(struct chunk *chunk, CUcontext context); /* it is current */
bool chunks_undone(void); /* some chunks were registered in a context that has ended */

#endif
