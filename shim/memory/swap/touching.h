/* touching.h: touching new chunks, so that the kernel makes their pages, in threads of our own.
 *
 * Any thread may call these functions.
 */
#ifndef GPU_LEASE_TOUCHING_H
#define GPU_LEASE_TOUCHING_H

#include "memory/swap/chunks.h"

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

#endif
