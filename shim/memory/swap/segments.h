/* segments.h: the physical memory of segments, and which devices may reach it. */
#ifndef GPU_LEASE_SEGMENTS_H
#define GPU_LEASE_SEGMENTS_H

#include "memory/swap/lane.h"

/* -- any thread; no lock is needed ------------------------------------------------- */

/* The properties of our physical memory on the device. */
CUmemAllocationProp segment_properties(CUdevice device, bool exportable);
/* Unmaps the segment and releases its physical memory. */
void segment_unmap(struct segment *segment);
/* Gives devices, a bit each, access to mapped memory: to read and write it, or only to read it. */
CUresult segments_set_access(CUdeviceptr base, size_t size, uint64_t writers, uint64_t readers);

/* -- the caller holds swap_lock ----------------------------------------------------- */

/* Can one call of the driver give access to the segment and the next older one together? */
bool segment_joins_older(const struct segment *segment);
/* Makes and maps physical memory for n segments, from `newest` to older ones, each of which joins
 * the next. Returns how many have memory now; *result says why not all. */
unsigned int segments_map(struct segment *newest, unsigned int n, CUresult *result);

/* -- threads of the program, without swap_lock --------------------------------------- */

/* Lets the device `from` reach the swapped memory of `memory_of`. Returns true if it could not
 * before. */
bool swap_peer(CUdevice memory_of, CUdevice from);
/* Lets the current device reach the swapped memory of all devices that it can have as peers.
 * Returns true if a call that the driver has refused may now succeed. */
bool swap_allow_peers(void);

#endif
