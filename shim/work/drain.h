/* drain.h: has submitted work finished? Asked by the client thread alone. */
#ifndef GPU_LEASE_DRAIN_H
#define GPU_LEASE_DRAIN_H

#include <stdbool.h>

bool device_idle(void); /* has everything finished that was submitted before? */
bool drained(void); /* the same by whatever means the driver has; sees which contexts are busy */
void drain_thread_starts(void);

#endif
