/* evict.h: segments of a lane are evicted, the oldest first.
 *
 * The client thread calls these functions, without swap_lock. The gate is shut and empty and all
 * work has finished, unless they say otherwise.
 */
#ifndef GPU_LEASE_EVICT_H
#define GPU_LEASE_EVICT_H

#include "memory/swap/lane.h"

/* Adds `bytes` to what shall be evicted. Returns the bytes of those segments that have no copy yet.
 */
uint64_t evict_add(struct lane *lane, uint64_t bytes);
/* Segments that stay since they could not be copied may be evicted again, as far as there is host
 * memory now. Whatever the gate is. */
void evict_unfix(struct lane *lane);
/* The same if there is a stream for copies, and as far as there is free host memory that is ready.
 * Returns the bytes that still stay. */
uint64_t evict_unfix_ready(struct lane *lane);
/* Begins to evict one segment, with a context of the device current. Returns false if no more can
 * be begun in this step. */
bool evict_one(struct lane *lane);
/* The device has no stream for copies: its memory becomes fixed until it has one, and the user is
 * told. */
void evict_impossible(struct lane *lane);

#endif
