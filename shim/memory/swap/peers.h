/* peers.h: devices of the process that reach each other's swapped memory. */
#ifndef GPU_LEASE_PEERS_H
#define GPU_LEASE_PEERS_H

#include <cuda.h>
#include <stdbool.h>

bool swap_peer(CUdevice memory_of, CUdevice from); /* true: it could not before */
bool swap_allow_peers(
    void); /* of the current device; true: a call that was refused may succeed now */

#endif
