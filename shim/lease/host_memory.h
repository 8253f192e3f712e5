/* host_memory.h: host memory for copies, asked of the daemon; the client thread alone. */
#ifndef GPU_LEASE_HOST_MEMORY_H
#define GPU_LEASE_HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

void host_memory_offered(bool offered); /* by this daemon, which takes claims then */
void host_memory_forget_daemon(void);
void host_memory_speak(void);
/* False: it is another message. The descriptor of this one is taken care of; below 0: none. */
bool host_memory_take(const void *message, size_t size, int descriptor);

#endif
