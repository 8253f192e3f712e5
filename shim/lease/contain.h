/* contain.h: under MPS, a signal that ends the process waits until its work has finished. */
#ifndef GPU_LEASE_CONTAIN_H
#define GPU_LEASE_CONTAIN_H

#include <signal.h>
#include <stdbool.h>

/* Called in the thread of the program that starts the client thread. */
void contain_begin(void);
/* The client thread: stands in for the default actions once there is work to wait for, and ends the
 * process if a signal has come. */
void contain_advance(void);
/* The client thread ends: from now on signals end the process at once. */
void contain_end(void);
/* Is this action ours, and not the program's? */
bool contain_is_ours(const struct sigaction *action);

#endif
