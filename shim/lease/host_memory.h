/* host_memory.h: carries requests for host memory, and for claims, to the daemon, and its answers
 * back. Only the client thread calls these functions. */
#ifndef GPU_LEASE_HOST_MEMORY_H
#define GPU_LEASE_HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Does this daemon have host memory for copies? */
void host_memory_offered(bool offered);
/* The daemon is gone: unanswered requests are repeated to the next one. */
void host_memory_forget_daemon(void);
/* Sends the requests that are due, if the daemon serves the process. */
void host_memory_speak(void);
/* Handles GL_HOST with its descriptor (below 0: none), which then belongs to the memory. Returns
 * false for any other message. */
bool host_memory_take(const void *message, size_t size, int descriptor);

#endif
