/* evict.h: what leaves a device. */
#ifndef GPU_LEASE_EVICT_H
#define GPU_LEASE_EVICT_H

#include "memory/swap/copier.h"

bool evict_one(struct copier *copier);     /* false: nothing more now */
void evict_nothing(struct copier *copier); /* nothing can be copied */

#endif
