/* chunk_pages.h: makes chunks ready to be copied to and from: the kernel makes their pages, and the
 * driver registers them (pins).
 *
 * A chunk is registered one slice at a time, since the calling thread is busy meanwhile. A copy of
 * the driver's must not cross from one slice to the next.
 */
#ifndef GPU_LEASE_CHUNK_PAGES_H
#define GPU_LEASE_CHUNK_PAGES_H

#include "memory/store/chunks.h"

/* -- any thread ------------------------------------------------------------------- */

/* Touches all units of the chunk that no other thread has begun to touch. */
void chunk_touch(struct chunk *chunk);
/* With `hurry` several threads touch, because the lease waits for the pages; else one thread does,
 * beside the program's work. */
void chunks_hurry(bool hurry);
bool chunks_hurried(void);
/* Starts those threads if a chunk is not touched yet. The caller does not hold chunks_lock. */
void chunks_touch(void);
/* Do such threads run? No chunk may end meanwhile. */
bool chunks_being_touched(void);

/* -- any thread, with chunks_lock ------------------------------------------------ */

/* Registers the next slices of a chunk that is not pinned, 32 MiB at most or one, or all, in the
 * current context. Returns false if that fails. */
bool chunk_pin_some(struct chunk *chunk);
bool chunk_pin(struct chunk *chunk);
/* Registers the slice that the address lies in. */
void chunk_pin_at(const char *at);
/* Unregisters slices, of which each has a bit; they are registered again when a copy in them is
 * used. A context is current. */
#define CHUNK_ALL (~0u)
void chunk_unpin(struct chunk *chunk, unsigned int slices);
/* Are there slices that are registered no more, until a copy is used? */
bool chunks_lost_pins(void);
/* Unpins, unmaps and frees a chunk without bytes of a copy. Its pins' contexts exist. */
void chunk_end(struct chunk *chunk);

/* -- any thread, without chunks_lock ---------------------------------------------- */

/* The context, which is current, is about to end: slices registered in it are unregistered. */
void chunks_context_ends(CUcontext context);

#endif
