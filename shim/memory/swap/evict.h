/* evict.h: segments that leave a device. */
#ifndef GPU_LEASE_EVICT_H
#define GPU_LEASE_EVICT_H

#include "memory/swap/copier.h"

bool evict_one(struct copier *copier);     /* false: no more can be begun now */
void evict_nothing(struct copier *copier); /* no copies are possible */

#endif
