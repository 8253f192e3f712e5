/* in_stop.h: may swapped memory move while the program's kernels are stopped?
 *
 * Copies of the program may still run then, or wait in a channel of a copy engine for a kernel. So
 * all channels of copy engines are frozen but the two in which our own copies go, one each way, and
 * copies of ours are tried: a channel executes in order, so what was ahead of them has ended, and
 * nothing of the program runs any more.
 *
 * Of the client thread.
 */
#ifndef GPU_LEASE_SWAP_IN_STOP_H
#define GPU_LEASE_SWAP_IN_STOP_H

#include <stdbool.h>

/* Makes what the copies need, while no work is in the way. */
void swap_stop_prepare(void);
/* Freezes the program's copies and tries ours, for some milliseconds. If they do not come, the
 * program's copies go on, and it may be tried again. */
bool swap_movable_in_stop(void);
/* The process has moved to another GPU: which channels its copies take is found anew. */
void swap_stop_forget(void);

#endif
