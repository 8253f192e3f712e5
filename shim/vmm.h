/* vmm.h: physical memory that the program creates and maps by itself. */
#ifndef GPU_LEASE_VMM_H
#define GPU_LEASE_VMM_H

#include "shim.h"

/* Calls after which others than this process' mappings know the memory: it stays where it
 * is from now on. The handle becomes the driver's. */
CUresult vmm_keep(CUmemGenericAllocationHandle *handle);
CUresult vmm_keep_range(CUdeviceptr base, size_t size);

#endif
