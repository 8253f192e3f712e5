/* messages.h: handles messages from gpu-leased, and sends the first one to it. Only the client
 * thread calls these functions. */
#ifndef GPU_LEASE_MESSAGES_H
#define GPU_LEASE_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>

/* Sends HELLO, the first message on each connection. */
void message_hello(void);
/* Handles a packet. `descriptor` is the file descriptor that came with it (below 0: none), which is
 * passed on or closed. */
void message_take(const void *data, size_t size, int descriptor);
/* What the daemon's WELCOME has announced: */
bool messages_introduce(void); /* it introduces processes to each other */
bool messages_explain(void);   /* it answers GL_WHY */
bool messages_park(void);      /* it understands GL_SUSPENDS */
bool messages_details(void);   /* it understands GL_DETAILS */
bool messages_signals(void);   /* it understands GL_SIGNALLED */

#endif
