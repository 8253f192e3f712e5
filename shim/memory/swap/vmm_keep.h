/* vmm_keep.h: memory of the program's own that others come to know. */
#ifndef GPU_LEASE_VMM_KEEP_H
#define GPU_LEASE_VMM_KEEP_H

#include <cuda.h>

/* For calls after which more than the mappings of this process know the memory: it stays where
 * it is from now on. The handle becomes the driver's. */
CUresult vmm_keep(CUmemGenericAllocationHandle *handle);
CUresult vmm_keep_range(CUdeviceptr base, size_t size);

#endif
