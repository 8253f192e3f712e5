/* vmm_keep.h: memory that the program has created and that others come to know stays where it is.
 *
 * Threads of the program call these before a driver call after which something other than the
 * mappings of this process refers to the memory, for example an export. The caller does not hold
 * vmm_lock. Errors are those of vmm_take_back() and vmm_make_whole().
 */
#ifndef GPU_LEASE_VMM_KEEP_H
#define GPU_LEASE_VMM_KEEP_H

#include <cuda.h>

/* The memory of the handle. *handle becomes the driver's own. */
CUresult vmm_keep(CUmemGenericAllocationHandle *handle);
/* All memory that is mapped in the range. */
CUresult vmm_keep_range(CUdeviceptr base, size_t size);

#endif
