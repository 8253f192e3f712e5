/* blocks.h: blocks of addresses, which consist of segments. */
#ifndef GPU_LEASE_BLOCKS_H
#define GPU_LEASE_BLOCKS_H

#include "memory/swap/devices.h"

/* Caller holds swap_lock: */
struct block *block_find(CUdeviceptr pointer);
void block_forget(struct block *block); /* block_end() follows when nothing of it moves */
/* Caller does not hold swap_lock: */
CUresult block_make(size_t size, CUdevice device, struct block **out); /* size: whole units */
void block_drop(struct block *block);
/* A block of memory that the program has mapped, with a handle for each piece. NULL: the host is
 * out of memory. */
struct block *block_adopt(CUdeviceptr base, size_t size, CUdevice device,
                          const CUmemAllocationProp *prop,
                          const CUmemGenericAllocationHandle *handles, uint64_t access);
/* Ends the block and returns its handles. False: some of it is away, or moves. */
bool block_return(struct block *block, CUmemGenericAllocationHandle *handles);
void block_end(struct block *block);
bool block_of_program(CUdeviceptr pointer); /* in memory that the program has mapped itself? */

#endif
