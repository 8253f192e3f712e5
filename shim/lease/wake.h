/* wake.h: how the client thread waits, and how others wake it. */
#ifndef GPU_LEASE_WAKE_H
#define GPU_LEASE_WAKE_H

#include <stdbool.h>
#include <stdint.h>

/* Makes what wakes the client thread, before it starts; again after a start that has failed has no
 * effect. Returns false if the process has no file descriptors left. */
bool wake_prepare(void);
/* Wakes it. Any thread may call this, in signal handlers too. */
void wake(void);
/* The client thread waits until it is woken or the daemon sends something, for `ns` nanoseconds at
 * most (below 0: no limit); or for less. Returns true if a message may have come or the connection
 * has ended. */
bool wake_wait(int64_t ns);

#endif
