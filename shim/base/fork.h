/* fork.h: a forked child starts with fresh state; the parent keeps its lease, its connection and
 * its memory. */
#ifndef GPU_LEASE_FORK_H
#define GPU_LEASE_FORK_H

#include "base/watch.h"

/* Registers `child`, which is called in the child, where only the forking thread exists. It resets
 * its own file's state. Of other files it may call lock_after_fork() only, since they may not have
 * been reset yet: the order of the calls is not defined. */
WATCH_LIST(fork_watches, void(void));
#define FORK_WATCH(child) WATCH(fork_watches, child)

#endif
