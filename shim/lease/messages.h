/* messages.h: messages from gpu-leased, and the first one to it. */
#ifndef GPU_LEASE_MESSAGES_H
#define GPU_LEASE_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>

void message_hello(void); /* to be sent first on each connection */
/* descriptor: what came with it, or below 0. */
void message_take(const void *data, size_t size, int descriptor);
bool messages_introduce(void); /* the daemon introduces processes to each other */
bool messages_explain(void);   /* the daemon answers GL_WHY */
bool messages_park(void);      /* the daemon hears that Slurm suspends this process */
bool messages_details(void);   /* the daemon hears GL_DETAILS */

#endif
