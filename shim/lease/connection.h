/* connection.h: the connection with gpu-leased. Only the client thread calls these functions. */
#ifndef GPU_LEASE_CONNECTION_H
#define GPU_LEASE_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

int connection_fd(void); /* below 0 while there is no connection */
/* Has the program closed the connection's descriptor? Then the connection has ended. */
bool connection_is_lost(void);

/* Connects, if there is no connection and a try is due. Returns whether there is a new one. */
bool connection_try(void);
/* There is no connection, and the last try has shown that this process can make none, whether or
 * not there is a daemon. */
bool connection_is_barred(void);
/* ns until connection_try() is due; below 0: there is a connection. */
int64_t connection_due_ns(void);

/* Returns false if the connection has ended. */
bool connection_send(const void *message, size_t size);
/* Reads the next message without waiting. Returns its bytes; 0 if there is none now; below 0 if the
 * connection has ended. *descriptor is the file descriptor that came with it, which the caller
 * closes; below 0 if none came. */
ssize_t connection_receive(void *message, size_t size, int *descriptor);

/* The daemon serves this process: if the connection ends, the next try is due at once. */
void connection_serves(void);
/* The daemon is of an older release and does not serve this process. */
void connection_is_older(void);
void connection_close(void);
/* A try is due now, whatever the clock says. */
void connection_retry(void);

/* Tells the user why no daemon serves this process. */
void connection_complain(void);

#endif
