/* lease.h: between the connection (client.c) and the lease (lease.c); the client thread alone. */
#ifndef GPU_LEASE_LEASE_H
#define GPU_LEASE_LEASE_H

#include "shim.h"

/* lease.c */
void lease_hello(struct gl_hello *hello);       /* its part of the message */
void lease_ask(void);                           /* for the lease, where threads wait for it */
void lease_take(const void *data, size_t size); /* a message with a sound header */
void lease_advance(void);
bool lease_awaited(
    void); /* or the memory that comes with it; not what this process has to finish */
int64_t lease_pause_ns(void); /* until lease_advance() makes sense; below 0: nothing is due */
void lease_forget_daemon(void);
void lease_after_fork(void);

/* client.c */
void client_send(const void *message, size_t size); /* while there is a connection */
void client_send_memory(void);                      /* if it has changed since */
void client_gate_changed(void);                     /* who waits at the gate looks again */
int client_waiting(void);                           /* threads at the gate */

static inline struct gl_header message_header(enum gl_type type, size_t length)
{
	return (struct gl_header){GL_MAGIC, GL_VERSION, (uint16_t)type, (uint32_t)length, 0};
}

#endif
