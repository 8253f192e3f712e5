/* messages.h: handles messages from gpu-leased, and sends the first one to it. Only the client
 * thread calls these functions. */
#ifndef GPU_LEASE_MESSAGES_H
#define GPU_LEASE_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>

/* Sends HELLO, the first message on each connection, as soon as that may be (lease_may_greet()). */
void message_hello(void);
/* Has it been sent? Until then nothing else may be. */
bool message_greet(void);
/* Handles a packet. `descriptor` is the file descriptor that came with it (below 0: none), which is
 * passed on or closed. */
void message_take(const void *data, size_t size, int descriptor);

#endif
