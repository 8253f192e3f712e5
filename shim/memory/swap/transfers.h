/* transfers.h: what was begun with a segment is over. */
#ifndef GPU_LEASE_TRANSFERS_H
#define GPU_LEASE_TRANSFERS_H

#include "memory/swap/devices.h"

void segment_evicted(struct segment *segment, enum segment_state state); /* it has left */
void segment_restored(struct segment *segment);                          /* it has come */
/* It need not leave any more, and its copy is good. */
void segment_not_evicted(struct segment *segment);
void segment_stays(struct segment *segment, const char *why); /* its bytes stay where they are */

#endif
