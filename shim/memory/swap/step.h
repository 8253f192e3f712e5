/* step.h: one step of evicting or restoring on a device. */
#ifndef GPU_LEASE_STEP_H
#define GPU_LEASE_STEP_H

#include <cuda.h>

/* Of the client thread, within contexts_with(). `copier` is a struct copier. */
void copier_step(CUcontext context, void *copier);
/* Of a thread of the program that holds LOCK_CONTEXTS: the context is about to end. */
void steps_context_ends(CUcontext context);

#endif
