/* reclaim.h: device memory that is kept for later use is freed when an allocation does not fit. */
#ifndef GPU_LEASE_RECLAIM_H
#define GPU_LEASE_RECLAIM_H

#include "base/watch.h"

#include <stdbool.h>

/* Functions that free what their file keeps; with `wait` they wait for the work that uses it. They
 * are called in the order of the files in shim/meson.build. */
WATCH_LIST(reclaim_watches, void(bool wait));
#define RECLAIM_WATCH(reclaim) WATCH(reclaim_watches, reclaim)

/* Calls all of them. Any thread may call this; it holds no lock. */
static inline void memory_reclaim(bool wait)
{
	for_each_watch(reclaim_watches, reclaim) (*reclaim)(wait);
}

#endif
