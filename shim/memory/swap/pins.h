/* pins.h: pinning chunks: registering them with the driver, so that it can copy from and to them.
 *
 * A chunk is registered one slice at a time, since the calling thread is busy meanwhile. A copy of
 * the driver's must not cross from one slice to the next. Callers hold chunks_lock.
 */
#ifndef GPU_LEASE_PINS_H
#define GPU_LEASE_PINS_H

#include "memory/swap/chunks.h"

/* Units of one slice; the last slice may have fewer. */
size_t chunk_slice(const struct chunk *chunk);
/* Are all slices registered? */
bool chunk_pinned(const struct chunk *chunk);
/* Registers the next slice, or all that are not registered, in the current context. Returns false
 * if that fails. */
bool chunk_pin_slice(struct chunk *chunk);
bool chunk_pin(struct chunk *chunk);
void chunk_unpin(struct chunk *chunk);
/* The context, which is current, is about to end: slices registered in it are unregistered. */
void chunk_context_ends(struct chunk *chunk, CUcontext context);
/* Have any chunks lost slices in that way and not been pinned again? */
bool chunks_lost_pins(void);

#endif
