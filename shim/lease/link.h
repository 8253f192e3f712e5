/* link.h: what the client thread says to gpu-leased while there is a connection. */
#ifndef GPU_LEASE_LINK_H
#define GPU_LEASE_LINK_H

#include "base/wire.h"

#include <stdbool.h>
#include <stddef.h>

void link_send(const void *message, size_t size); /* nothing happens without a connection */
void link_send_memory(void);                      /* if it has changed since */
void link_send_memory_when_due(void);
void link_send_details(bool heard); /* if the memory has been said since */
int64_t link_pause_ns(void);        /* until that makes sense; below 0: nothing is due */

void link_serves(void); /* the daemon has welcomed the process on this connection */
bool link_is_served(void);

/* The connection has ended. Whoever told the daemon something hears of it once. */
void link_lose(void);
bool link_take_loss(void);

#endif
