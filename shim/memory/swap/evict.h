/* evict.h: which segments are evicted from a device, and how.
 *
 * The client thread calls these functions, without swap_lock. The gate is shut and empty and all
 * work has finished.
 */
#ifndef GPU_LEASE_EVICT_H
#define GPU_LEASE_EVICT_H

#include "memory/swap/copier.h"

/* Adds `bytes` to what shall be evicted from the device, the oldest segments first. Returns the
 * bytes of those segments that have no copy yet. */
uint64_t evict_add(CUdevice device, uint64_t bytes);
/* Bytes of the segments without a copy among the oldest ones of `bytes` together, without shared
 * ones, which stay. */
uint64_t evict_copies_needed(CUdevice device, uint64_t bytes);
/* Segments that are fixed since they could not be copied may be evicted again, as far as there is
 * host memory now. The caller holds swap_lock. */
void evict_unfix(CUdevice device);
/* The same if there is a stream for copies, and as far as there is free host memory that is ready;
 * the caller does not hold swap_lock. Returns the bytes that still stay. */
uint64_t evict_unfix_ready(CUdevice device);
/* Begins to evict one segment, with a context of the device current. Returns false if no more can
 * be begun in this step. */
bool evict_one(struct copier *copier);
/* The device has no stream for copies: its memory becomes fixed until it has one, and the user is
 * told. */
void evict_impossible(struct copier *copier);

#endif
