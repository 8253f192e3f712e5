/* drain.h: has submitted work finished?
 *
 * submitted: gate_settled(), read before.
 */
#ifndef GPU_LEASE_DRAIN_H
#define GPU_LEASE_DRAIN_H

#include <stdbool.h>

/* Has all work finished that was submitted before this call? Never waits: false if a driver could
 * tell only by waiting. Afterwards contexts_busy_on() tells of each device. */
bool poll_idle(unsigned long submitted);
/* The same, but with an older driver it waits until the work has finished. Afterwards
 * context_busy() tells which contexts are busy. Of the client thread. */
bool poll_drained(unsigned long submitted);
/* Prepares the client thread; called once, before it calls the others. */
void drain_thread_starts(void);

#endif
