/* host.h: the messages by which the client thread gets host memory for copies from the daemon
 * (memory/store/node_chunks.c).
 *
 * The client thread calls these functions, without any lock.
 */
#ifndef GPU_LEASE_HOST_H
#define GPU_LEASE_HOST_H

#include "base/wire.h"

#include <stdbool.h>

/* Says whether the connected daemon has host memory to give. */
void host_offered(bool offered);
/* Stores the next message to the daemon in *next. Returns false if there is none now. */
bool host_next_message(struct gl_host *next);
/* The daemon has answered a request. descriptor: of the memory; below 0: none came. It is closed
 * here. */
void host_answer(const struct gl_host_answer *answer, int descriptor);
/* The connection is lost. Requests that were not answered are repeated to the next daemon. */
void host_forget_daemon(void);

#endif
