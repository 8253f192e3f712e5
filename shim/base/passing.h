/* passing.h: messages with file descriptors, through sockets of the local machine. */
#ifndef GPU_LEASE_PASSING_H
#define GPU_LEASE_PASSING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PASS_MOST 64 /* the most descriptors of one message */

/* Sends a message with n descriptors, which stay open here, without waiting. Returns false if not
 * all of it was sent. */
bool pass_send(int end, const void *message, size_t size, const int *files, size_t n);
/* Receives a message without waiting. Returns its bytes, 0 if the other end is closed, below 0 as
 * recvmsg(2). files: room for PASS_MOST. *n descriptors came with it, also after an error; the
 * caller closes them. */
ssize_t pass_receive(int end, void *message, size_t size, int *files, size_t *n);

#endif
