/* changes.h: what the process has of device memory has changed. */
#ifndef GPU_LEASE_CHANGES_H
#define GPU_LEASE_CHANGES_H

#include "base/watch.h"

WATCH_LIST(memory_watches, void(void));
#define MEMORY_WATCH(changed) WATCH(memory_watches, changed)

static inline void memory_changed(void)
{
	for_each_watch(memory_watches, changed) (*changed)();
}

#endif
