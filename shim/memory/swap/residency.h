/* residency.h: a residency is a time in which all swapped memory is on its devices and stays there.
 *
 * It lasts from the end of a restore until the gate is shut and all work has finished. New blocks
 * get physical memory at once meanwhile. The callers do not hold swap_lock.
 */
#ifndef GPU_LEASE_RESIDENCY_H
#define GPU_LEASE_RESIDENCY_H

#include <stdbool.h>

/* Does a residency last now? Any thread may ask. */
bool residency_lasts(void);
/* Of the client thread. Begins a residency if every segment is on its device; with `force` also if
 * some are not. Returns false if not, or if segments are still being moved. */
bool residency_begin(bool force);
/* Of the client thread: from now on segments may be evicted, once no thread is inside the gate.
 * Returns false if the process has no swapped memory. */
bool residency_end(void);

#endif
