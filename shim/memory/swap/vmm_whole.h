/* vmm_whole.h: memory that is in pieces becomes one object of the driver's. */
#ifndef GPU_LEASE_VMM_WHOLE_H
#define GPU_LEASE_VMM_WHOLE_H

#include "memory/swap/vmm.h"

/* Makes one object of the driver's of the memory. Caller has one of its handles, and does not
 * hold vmm_lock. */
CUresult vmm_make_whole(struct physical *physical);

#endif
