/* blocks.h: blocks of addresses, which consist of segments. */
#ifndef GPU_LEASE_BLOCKS_H
#define GPU_LEASE_BLOCKS_H

#include "memory/swap/devices.h"

/* Callers hold swap_lock: */
struct block *block_find(CUdeviceptr pointer);
void block_forget(struct block *block); /* then block_end(), when nothing of it moves */
/* Without the lock: */
CUresult block_make(size_t size, CUdevice device, struct block **out); /* size: whole units */
void block_drop(struct block *block);
/* What the program has mapped, with a handle for each piece; it is there. NULL: no memory. */
struct block *block_adopt(CUdeviceptr base, size_t size, CUdevice device,
                          const CUmemAllocationProp *prop,
                          const CUmemGenericAllocationHandle *handles, uint64_t access);
/* The handles of now, and the end of the block; false: some of it is away, or moves. */
bool block_return(struct block *block, CUmemGenericAllocationHandle *handles);
void block_end(struct block *block);
bool block_of_program(CUdeviceptr pointer); /* in what the program has mapped itself */

#endif
