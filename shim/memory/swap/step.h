/* step.h: the orders of one lane, and its steps. */
#ifndef GPU_LEASE_STEP_H
#define GPU_LEASE_STEP_H

#include "memory/swap/lane.h"

/* -- the client thread, without swap_lock --------------------------------------------- */

/* The lane restores all that it has; what it was doing ends, but for copies that have begun. */
void lane_begin_restoring(struct lane *lane);
/* The lane preloads so many bytes, of segments that have a copy, since the others need no time. An
 * eviction ends first. Returns `bytes`. */
uint64_t lane_preload(struct lane *lane, uint64_t bytes);
/* Evicts so many bytes; an eviction goes on, and they are added. Returns the bytes that need new
 * copies. */
uint64_t lane_evict(struct lane *lane, uint64_t bytes);
/* Begins nothing more. Copies that have begun finish by themselves. */
void lane_stop(struct lane *lane);
/* Takes a step, if there is something to do. Returns true if the lane has more to do. */
bool lane_step(struct lane *lane);

/* -- of a thread of the program that holds LOCK_CONTEXTS: the context is about to end -- */

void lanes_context_ends(CUcontext context);

#endif
