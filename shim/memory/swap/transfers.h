/* transfers.h: the end of a transfer of a segment, by its outcome. */
#ifndef GPU_LEASE_TRANSFERS_H
#define GPU_LEASE_TRANSFERS_H

#include "memory/swap/devices.h"

void segment_evicted(struct segment *segment, enum segment_state state); /* the segment has left */
void segment_restored(struct segment *segment);                          /* the segment is back */
/* The segment need not leave any more, and its copy is current. */
void segment_not_evicted(struct segment *segment);
void segment_stays(struct segment *segment, const char *why); /* its bytes stay on the device */

#endif
