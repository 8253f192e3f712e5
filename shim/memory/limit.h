/* limit.h: the bytes of a device that this process counts against its limit. An allocation is
 * counted before the driver is asked, and until it has been freed. */
#ifndef GPU_LEASE_LIMIT_H
#define GPU_LEASE_LIMIT_H

#include <cuda.h>
#include <stdint.h>

CUresult limit_take(CUdevice device, uint64_t size); /* CUDA_ERROR_OUT_OF_MEMORY above the limit */
void limit_add(CUdevice device, uint64_t size);      /* without a check */
void limit_give(CUdevice device, uint64_t size);
uint64_t memory_used(CUdevice device);

#endif
