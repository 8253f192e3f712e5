/* reclaim.h: device memory that is kept without need is given up when there is no room. */
#ifndef GPU_LEASE_RECLAIM_H
#define GPU_LEASE_RECLAIM_H

#include "base/watch.h"

#include <stdbool.h>

/* Each gives up what it keeps; wait: until no work can use it. They are called in the order
 * of the files in shim/meson.build. */
WATCH_LIST(reclaim_watches, void(bool wait));
#define RECLAIM_WATCH(reclaim) WATCH(reclaim_watches, reclaim)

static inline void memory_reclaim(bool wait)
{
	for_each_watch(reclaim_watches, reclaim) (*reclaim)(wait);
}

#endif
