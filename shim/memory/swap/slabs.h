/* slabs.h: small allocations share a block of one segment. */
#ifndef GPU_LEASE_SLABS_H
#define GPU_LEASE_SLABS_H

#include "memory/swap/devices.h"

/* Caller holds swap_lock: */
bool slab_take(CUdevice device, size_t size, CUdeviceptr *out); /* from existing slabs */
bool slab_give(struct slab *slab, CUdeviceptr pointer,
               size_t size); /* true: the slab is empty now */
void slab_forget(struct block *block);
CUdeviceptr slab_start(struct slab *slab, CUdeviceptr pointer); /* 0: no allocation is there */
/* Caller does not hold swap_lock: */
size_t slab_next_size(CUdevice device);
CUresult slab_add(struct block *block);

#endif
