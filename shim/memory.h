/* memory.h: the ranges of device memory that this process has. */
#ifndef GPU_LEASE_MEMORY_H
#define GPU_LEASE_MEMORY_H

#include "shim.h"

bool memory_add(CUdeviceptr base, size_t size, CUdevice device, bool managed);
bool memory_remove(CUdeviceptr base); /* false: not one of ours */
bool memory_known(CUdeviceptr base);

#endif
