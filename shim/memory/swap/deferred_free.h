/* deferred_free.h: swapped memory is freed at once, or after a capture.
 *
 * Any thread may call these functions; the caller does not hold swap_lock.
 */
#ifndef GPU_LEASE_DEFERRED_FREE_H
#define GPU_LEASE_DEFERRED_FREE_H

#include "memory/kind.h"

/* Frees an allocation. With `wait` it first waits for the work that may use the memory, as the
 * driver does. While the process has no lease there is no such work. If a capture forbids the wait
 * the memory is freed later. */
CUresult swap_free(CUdeviceptr pointer, const struct memory_range *range, bool wait);
/* Frees what a capture has deferred. Without `wait` it does so only if no work can be submitted. */
void swap_free_deferred(bool wait);
/* Frees what has been deferred of a context that has ended. */
void swap_free_deferred_of(CUcontext context);
/* Waits for the work of the context, unless none can be submitted. Returns false if a capture
 * forbids the wait; else *result is the driver's answer where there was one. */
bool swap_wait_for_work(CUcontext context, CUresult *result);
/* Has a capture deferred any? */
bool swap_defers(void);

#endif
