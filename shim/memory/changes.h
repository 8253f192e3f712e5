/* changes.h: a list of functions to call when the amounts of the process's device memory change. */
#ifndef GPU_LEASE_CHANGES_H
#define GPU_LEASE_CHANGES_H

#include "base/watch.h"

WATCH_LIST(memory_watches, void(void));
#define MEMORY_WATCH(changed) WATCH(memory_watches, changed)

/* The amounts have changed. Any thread may call this, with or without locks. */
static inline void memory_changed(void)
{
	for_each_watch(memory_watches, changed) (*changed)();
}

#endif
