/* link.h: sends to gpu-leased while there is a connection. Only the client thread calls these
 * functions. */
#ifndef GPU_LEASE_LINK_H
#define GPU_LEASE_LINK_H

#include "base/wire.h"

#include <stdbool.h>
#include <stddef.h>

/* Sends a message. Without a connection the message is dropped. */
void link_send(const void *message, size_t size);
/* Sends MEMORY, if the process's memory has changed since it was last sent. */
void link_send_memory(void);
/* The same, but not more often than every 4 ms. */
void link_send_memory_when_due(void);
/* Sends DETAILS for people after MEMORY has been sent; `heard`: the daemon understands it. */
void link_send_details(void);
/* Sends CHANNELS, if the daemon does not know the latest. */
void link_send_channels(void);
/* ns until link_send_memory_when_due() has something to send; below 0: nothing has changed. */
int64_t link_pause_ns(void);

/* The daemon has welcomed the process on this connection. */
void link_serves(void);
/* Has it done so? */
bool link_is_served(void);

/* Closes the connection, which has ended. */
void link_lose(void);
/* Has a connection ended since the last call? */
bool link_take_loss(void);

#endif
