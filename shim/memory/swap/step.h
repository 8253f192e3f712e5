/* step.h: one step of what moves on a device. */
#ifndef GPU_LEASE_STEP_H
#define GPU_LEASE_STEP_H

#include <cuda.h>

void copier_step(CUcontext context, void *copier);
void steps_context_ends(CUcontext context);

#endif
