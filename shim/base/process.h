/* process.h: the end of the process. */
#ifndef GPU_LEASE_PROCESS_H
#define GPU_LEASE_PROCESS_H

#include "base/watch.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Set when the process begins to exit. From then on no thread of ours may call the driver, which
 * may already have been torn down. */
extern atomic_bool process_ends;

/* Arranges that process_ends is set before the driver's own exit handlers run. Called whenever the
 * driver is in use; only the first call has an effect. */
void process_guard_exit(void);

/* Registers `ends`, which is called once process_ends is set, and returns when the threads of its
 * file have left the driver. It takes no locks: exit() may be called by a signal handler that has
 * interrupted a thread which holds one. */
WATCH_LIST(exit_watches, void(void));
#define EXIT_WATCH(ends) WATCH(exit_watches, ends)

#endif
