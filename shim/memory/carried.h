/* carried.h: how the client thread hears of a carrier (memory/swap/carrier.c).
 *
 * The client thread calls these functions, without any lock.
 */
#ifndef GPU_LEASE_CARRIED_H
#define GPU_LEASE_CARRIED_H

#include <stdbool.h>

/* There is a carrier, at the other end of this socket, which belongs to this file now. Below 0: it
 * has been lost on the way. */
void carried_meet(int socket);
/* The move is over, wherever the process is: nothing goes away any more. */
void carried_move_ends(void);
/* A daemon serves the process that knows nothing of what is away. */
void carried_forget_daemon(void);
/* Is something away whose carrier has ended, which no daemon has been told yet? Returns true once.
 */
bool carried_is_stranded(void);

#endif
