/* vmm_whole.h: memory in several pieces becomes one object of the driver's. */
#ifndef GPU_LEASE_VMM_WHOLE_H
#define GPU_LEASE_VMM_WHOLE_H

#include "memory/swap/vmm.h"

/* Replaces the pieces by one object with the same bytes and mappings. The caller has retained the
 * memory (vmm_retain()), and does not hold vmm_lock. May wait for the lease.
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: a capture is active; CUDA_ERROR_NOT_SUPPORTED: something
 * other than a device of this process has access; CUDA_ERROR_OUT_OF_MEMORY: neither the device nor
 * the host has memory for a second copy. */
CUresult vmm_make_whole(struct physical *physical);

#endif
