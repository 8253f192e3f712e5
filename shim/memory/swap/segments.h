/* segments.h: the segments of blocks, and their physical memory.
 *
 * The caller holds swap_lock, unless a comment says otherwise.
 */
#ifndef GPU_LEASE_SEGMENTS_H
#define GPU_LEASE_SEGMENTS_H

#include "memory/swap/devices.h"

/* The properties of our physical memory on the device. No lock is needed. */
CUmemAllocationProp segment_properties(CUdevice device);
/* Unmaps the segment and releases its physical memory. No lock is needed. */
void segment_unmap(struct segment *segment);
/* Gives devices, a bit each, read and write access to mapped memory. No lock is needed. */
CUresult segments_set_access(CUdeviceptr base, size_t size, uint64_t devices);

/* Adds the segment as the newest of its device, or removes it. */
void segment_link(struct segment *segment);
void segment_unlink(struct segment *segment);
/* Can one call of the driver give access to the segment and the next older one together? */
bool segment_joins_older(const struct segment *segment);
/* Makes and maps physical memory for n segments, from `newest` to older ones, each of which joins
 * the next. Returns how many have memory now; *result says why not all. */
unsigned int segments_map(struct segment *newest, unsigned int n, CUresult *result);
/* The segment's bytes are on the device. */
void segment_set_resident(struct segment *segment);
/* The segment has no physical memory any more; its state is AWAY or ABSENT. */
void segment_set_gone(struct segment *segment, enum segment_state state);
void segment_set_fixed(struct segment *segment, bool fixed);
/* The client thread begins and ends to move the segment. segment_end_move() returns NULL, or a
 * forgotten block that the caller must end with block_end(), without the lock. */
void segment_begin_move(struct segment *segment);
struct block *segment_end_move(struct segment *segment);

#endif
