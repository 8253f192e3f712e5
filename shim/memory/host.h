/* host.h: host memory for copies that is the node's, as the client thread asks the daemon for it
 * (memory/swap/node_chunks.c). */
#ifndef GPU_LEASE_HOST_H
#define GPU_LEASE_HOST_H

#include "base/wire.h"

#include <stdbool.h>

/* Of the client thread: */
void host_offered(bool offered);              /* whether this daemon has any */
bool host_next_message(struct gl_host *next); /* false: nothing is to be said now */
void host_answer(const struct gl_host_answer *answer, int descriptor); /* below 0: none came */
void host_forget_daemon(void); /* what it has not answered the next one is asked */

#endif
