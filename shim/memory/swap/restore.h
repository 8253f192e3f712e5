/* restore.h: which segments are restored to a device, and how. */
#ifndef GPU_LEASE_RESTORE_H
#define GPU_LEASE_RESTORE_H

#include "memory/swap/lane.h"

/* Of the client thread, with a context of the device current and without swap_lock. Begins to
 * restore some segments. Returns false if no more can be begun in this step. */
bool restore_some(struct lane *lane);
/* Evicted memory of the lane cannot be restored: says so once, and ends the restore. */
void restore_failed(struct lane *lane, CUresult error);

#endif
