/* connection.h: the connection with gpu-leased (connection.c); the client thread alone. */
#ifndef GPU_LEASE_CONNECTION_H
#define GPU_LEASE_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

int connection_fd(void); /* below 0 while there is none */

/* Connect, if that is due. True: there is a new connection. */
bool connection_try(void);
/* Until connection_try() makes sense; below 0: there is a connection. */
int64_t connection_due_ns(void);

bool connection_send(const void *message, size_t size); /* false: there is no connection any more */
/* Bytes of the next message; 0: there is none now; below 0: the connection has ended.
 * *descriptor: what came with it, the caller's from then on; below 0: nothing did. */
ssize_t connection_receive(void *message, size_t size, int *descriptor);

/* The daemon serves this process: should the connection end, another is tried at once. */
void connection_serves(void);
/* It is of an older release, and does not: another one is waited for. */
void connection_is_older(void);
void connection_close(void);

void connection_complain(void); /* tell the user why there is no daemon that serves this process */

#endif
