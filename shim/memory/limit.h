/* limit.h: bytes of the limit, before they are allocated and until they are freed. */
#ifndef GPU_LEASE_LIMIT_H
#define GPU_LEASE_LIMIT_H

#include <cuda.h>
#include <stdint.h>

CUresult limit_take(CUdevice device, uint64_t size); /* or the driver's own error: too many */
void limit_add(CUdevice device, uint64_t size);      /* they are there already */
void limit_give(CUdevice device, uint64_t size);
uint64_t memory_used(CUdevice device);

#endif
