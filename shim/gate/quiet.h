/* quiet.h: tasks that are done while the gate is shut and no work is in flight. */
#ifndef GPU_LEASE_QUIET_H
#define GPU_LEASE_QUIET_H

#include <cuda.h>
#include <stdbool.h>

/* A thread of the program that holds no lock: has the client thread call `work`, and waits for its
 * return. CUDA_ERROR_NOT_PERMITTED if the client thread has ended before. */
CUresult quiet_do(void (*work)(void *argument), void *argument);

/* The client thread: */
/* Are there tasks that have not begun, and no captures that they wait for? */
bool quiet_wanted(void);
/* Does all tasks, unless there is a capture. The gate is shut, and no work is in flight. */
void quiet_now(void);
/* The client thread ends: refuses all tasks that have not begun. */
void quiet_end(void);

#endif
