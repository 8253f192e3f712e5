/* restore.h: segments that come back to a device. */
#ifndef GPU_LEASE_RESTORE_H
#define GPU_LEASE_RESTORE_H

#include "memory/swap/copier.h"

bool restore_some(struct copier *copier); /* false: no more can be begun now */

#endif
