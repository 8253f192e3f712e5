/* fork.h: a forked child starts anew; what the parent held stays the parent's. */
#ifndef GPU_LEASE_FORK_H
#define GPU_LEASE_FORK_H

#include "base/watch.h"

/* `child` is called in the child, where only the forking thread lives. It makes new what its
 * file knows, and calls nothing of other files but lock_after_fork(): the order of the calls
 * is not known. */
WATCH_LIST(fork_watches, void(void));
#define FORK_WATCH(child) WATCH(fork_watches, child)

#endif
