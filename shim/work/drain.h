/* drain.h: has submitted work finished? Asked by the client thread alone. */
#ifndef GPU_LEASE_DRAIN_H
#define GPU_LEASE_DRAIN_H

#include <stdbool.h>

/* Has everything finished that was submitted before? Answered without waiting, where the driver
 * can: else no. */
bool poll_idle(void);
/* The same, by whatever means the driver has; notes which contexts are busy. */
bool poll_drained(void);
void drain_thread_starts(void);

#endif
