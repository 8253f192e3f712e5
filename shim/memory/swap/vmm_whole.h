/* vmm_whole.h: memory that is in pieces becomes one object of the driver's. */
#ifndef GPU_LEASE_VMM_WHOLE_H
#define GPU_LEASE_VMM_WHOLE_H

#include "memory/swap/vmm.h"

/* For who has one of its handles, without vmm_lock: the driver has it in one object from
 * now on. */
CUresult vmm_make_whole(struct physical *physical);

#endif
