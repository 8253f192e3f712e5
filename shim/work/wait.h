/* wait.h: a thread of the program waits for submitted work. */
#ifndef GPU_LEASE_WORK_WAIT_H
#define GPU_LEASE_WORK_WAIT_H

#include <cuda.h>
#include <stdbool.h>

/* Waits for the work that the context was given before, with no lock of the driver held. Returns
 * false, and has not waited, if a capture forbids that; else *result is the driver's answer. */
bool context_wait(CUcontext context, CUresult *result);

#endif
