/* restore.h: what comes back to a device. */
#ifndef GPU_LEASE_RESTORE_H
#define GPU_LEASE_RESTORE_H

#include "memory/swap/copier.h"

bool restore_some(struct copier *copier); /* false: nothing more now */

#endif
