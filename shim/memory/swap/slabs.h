/* slabs.h: small allocations share a block that has one segment. */
#ifndef GPU_LEASE_SLABS_H
#define GPU_LEASE_SLABS_H

#include "memory/swap/lane.h"

/* -- the caller holds swap_lock -------------------------------------------------- */

/* Frees an allocation of that size. Returns true if the slab has no allocations now. */
bool slab_give(struct slab *slab, CUdeviceptr pointer, size_t size);
/* Frees the slab, not its block. */
void slab_forget(struct block *block);
/* Where the allocation begins that the address lies in. 0: there is none. */
CUdeviceptr slab_start(struct slab *slab, CUdeviceptr pointer);

/* -- the caller does not hold swap_lock -------------------------------------------- */

/* Allocates from the lane's slabs. Returns false if none has so many free bytes in a row. */
bool slab_take(struct lane *lane, size_t size, CUdeviceptr *out);
/* How large, in bytes, the block of the lane's next slab shall be. */
size_t slab_next_size(const struct lane *lane);
/* Makes a slab of a new block. */
CUresult slab_add(struct block *block);

#endif
