/* lease.h: the lease, from its grant to its release; the client thread alone. */
#ifndef GPU_LEASE_LEASE_H
#define GPU_LEASE_LEASE_H

#include "base/wire.h"

#include <stdbool.h>
#include <stddef.h>

void lease_hello(struct gl_hello *hello);       /* its part of the message */
void lease_ask(void);                           /* for the lease, where threads wait for it */
void lease_take(const void *data, size_t size); /* a message with a sound header */
void lease_advance(void);
/* Is the lease waited for, or the memory that comes with it? Else something that this process
 * itself has to finish. */
bool lease_awaited(void);
int64_t lease_pause_ns(void); /* until lease_advance() makes sense; below 0: nothing is due */
void lease_forget_daemon(void);

#endif
