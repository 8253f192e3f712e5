/* segments.h: the segments of blocks, and their physical memory. */
#ifndef GPU_LEASE_SEGMENTS_H
#define GPU_LEASE_SEGMENTS_H

#include "memory/swap/devices.h"

CUmemAllocationProp segment_properties(CUdevice device);
void segment_leave(struct segment *segment); /* ends its mapping and memory; no lock is needed */
/* Caller holds swap_lock: */
void segment_link(struct segment *segment); /* as the newest of its device */
void segment_unlink(struct segment *segment);
CUresult segments_allow(CUdeviceptr base, size_t size, uint64_t devices); /* a bit each */
/* Can one call of the driver give access to the segment and the older one beside it? */
bool segments_join(const struct segment *segment);
/* Makes and maps physical memory for n segments that join, from the newest down. Returns how
 * many got it. */
unsigned int segments_bring(struct segment *newest, unsigned int n, CUresult *result);
void segment_landed(struct segment *segment); /* makes it RESIDENT */
void segment_left(struct segment *segment, enum segment_state state);
void segment_fix(struct segment *segment, bool fixed);
void segment_moves(struct segment *segment);
struct block *segment_moved(struct segment *segment); /* NULL, or a block that must be ended */

#endif
