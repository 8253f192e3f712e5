/* peers.h: devices of the process that may reach each other's swapped memory.
 *
 * Threads of the program call these functions, without swap_lock.
 */
#ifndef GPU_LEASE_PEERS_H
#define GPU_LEASE_PEERS_H

#include <cuda.h>
#include <stdbool.h>

/* Lets the device `from` reach the swapped memory of `memory_of`. Returns true if it could not
 * before. */
bool swap_peer(CUdevice memory_of, CUdevice from);
/* Lets the current device reach the swapped memory of all devices that it can have as peers.
 * Returns true if a call that the driver has refused may now succeed. */
bool swap_allow_peers(void);

#endif
