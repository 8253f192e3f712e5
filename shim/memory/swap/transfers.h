/* transfers.h: what follows from the end of a segment's move.
 *
 * The client thread calls these functions, or a thread whose context ends, without swap_lock. Each
 * of them ends the move that segment_begin_move() has begun.
 */
#ifndef GPU_LEASE_TRANSFERS_H
#define GPU_LEASE_TRANSFERS_H

#include "memory/swap/devices.h"

/* The segment is evicted: unmaps it. Its state is AWAY or ABSENT from now on. */
void transfer_evicted(struct segment *segment, enum segment_state state);
/* The segment is restored. */
void transfer_restored(struct segment *segment);
/* The segment is copied and need not be evicted any more: it is resident, and its copy current. */
void transfer_cancelled(struct segment *segment);
/* The segment cannot be evicted, and becomes fixed. The user is told why, once. */
void transfer_impossible(struct segment *segment, const char *why);
/* Tells the user that memory cannot be evicted, and why; once. */
void transfer_complain(CUdevice device, const char *why);

#endif
