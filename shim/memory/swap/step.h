/* step.h: one step of a lane. */
#ifndef GPU_LEASE_STEP_H
#define GPU_LEASE_STEP_H

#include "memory/swap/lane.h"

/* Of the client thread, without swap_lock. Evicts, restores or preloads, as the lane's mode says;
 * lane->busy: there is more to do. */
void lane_take_step(struct lane *lane);
/* Of the client thread, before the lanes' steps: handles what the carrier has answered, whatever
 * the lanes are to do: memory of lanes that have no context any more too. */
void lanes_finish_carried(void);
/* Of a thread of the program that holds LOCK_CONTEXTS: the context is about to end. */
void lanes_context_ends(CUcontext context);

#endif
