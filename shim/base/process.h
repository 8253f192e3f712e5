/* process.h: the end of the process. */
#ifndef GPU_LEASE_PROCESS_H
#define GPU_LEASE_PROCESS_H

#include "base/watch.h"

#include <stdatomic.h>
#include <stdbool.h>

/* The driver may be gone: nobody calls it any more. */
extern atomic_bool process_ends;

/* The driver is in use: from now on it may end with the process. */
void process_guard_exit(void);

/* Called once process_ends is set; returns when its file's threads use the driver no more. A
 * signal's handler may have interrupted who has a lock, so it takes none. */
WATCH_LIST(exit_watches, void(void));
#define EXIT_WATCH(ends) WATCH(exit_watches, ends)

#endif
