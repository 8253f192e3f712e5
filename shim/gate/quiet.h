/* quiet.h: something to be done while the gate is shut and no work is under way. */
#ifndef GPU_LEASE_QUIET_H
#define GPU_LEASE_QUIET_H

#include <cuda.h>
#include <stdbool.h>

/* Of a thread of the program: have the client thread do it, and wait until it is done. */
CUresult quiet_do(void (*work)(void *argument), void *argument);

/* Of the client thread: */
bool quiet_wanted(void);
void quiet_now(void); /* it is quiet: do all that there is */
void quiet_end(void); /* nothing will be done any more */

#endif
