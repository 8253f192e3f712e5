/* vmm_keep.h: memory that the program has created and that others come to know stays where it is.
 *
 * Threads of the program call these before a driver call after which something other than the
 * mappings of this process refers to the memory, for example an export. The caller does not hold
 * vmm_lock. Errors are those of vmm_take_back(). Further ones:
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: a capture is active; CUDA_ERROR_NOT_SUPPORTED: something
 * other than a device of this process has access; CUDA_ERROR_OUT_OF_MEMORY: neither the device nor
 * the host has memory for a second copy.
 */
#ifndef GPU_LEASE_VMM_KEEP_H
#define GPU_LEASE_VMM_KEEP_H

#include <cuda.h>

/* The memory of the handle. *handle becomes the driver's own. */
CUresult vmm_keep(CUmemGenericAllocationHandle *handle);
/* All memory that is mapped in the range. */
CUresult vmm_keep_range(CUdeviceptr base, size_t size);

#endif
