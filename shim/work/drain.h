/* drain.h: has submitted work finished? Only the client thread calls these functions. */
#ifndef GPU_LEASE_DRAIN_H
#define GPU_LEASE_DRAIN_H

#include <stdbool.h>

/* Has all work finished that was submitted before this call? Never waits: false if a driver could
 * tell only by waiting. Afterwards contexts_busy_on() tells of each device. */
bool poll_idle(void);
/* The same, but with an older driver it waits until the work has finished. Afterwards
 * context_busy() tells which contexts are busy. */
bool poll_drained(void);
/* Prepares the client thread; called once, before all others. */
void drain_thread_starts(void);

#endif
