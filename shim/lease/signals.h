/* signals.h: has the program handled a signal while it waits? Of the client thread. */
#ifndef GPU_LEASE_SIGNALS_H
#define GPU_LEASE_SIGNALS_H

#include <stdbool.h>

/* From now on the signals that the program handles are counted, or not any more. Called again and
 * again, since the program may set other handlers. */
void signals_watch(bool watch);
/* How many have been counted so far. */
unsigned int signals_handled(void);

#endif
