/* deferred_free.h: freeing swapped memory, at once or after a capture. */
#ifndef GPU_LEASE_DEFERRED_FREE_H
#define GPU_LEASE_DEFERRED_FREE_H

#include "memory/kind.h"

/* wait: for the work that may use the memory, as the driver does. While the process does not
 * hold there is no such work. */
CUresult swap_free(CUdeviceptr pointer, const struct memory_range *range, bool wait);
void swap_catch_up(bool wait); /* frees what had been put off */
void swap_free_of_context(
    CUcontext context); /* frees what had been put off, of a context that has ended */
/* Waits for the work of the context. False: a capture forbids it. */
bool swap_wait_for(CUcontext context, CUresult *result);

#endif
