/* blocks.h: blocks, which are ranges of reserved addresses divided into segments.
 *
 * Any thread may call these functions.
 */
#ifndef GPU_LEASE_BLOCKS_H
#define GPU_LEASE_BLOCKS_H

#include "memory/kind.h"
#include "memory/swap/lane.h"

/* -- the caller holds swap_lock ----------------------------------------------- */

/* The block that the address lies in, or NULL. */
struct block *block_find(CUdeviceptr pointer);
/* Are all segments of the block on the device, and is none being moved? */
bool block_is_resident(const struct block *block);

/* -- the caller does not hold swap_lock ---------------------------------------- */

/* Reserves `size` bytes, a multiple of the lane's unit, and counts them against the limit. They
 * get physical memory at once if all swapped memory is resident (lane.h). Errors:
 * CUDA_ERROR_OUT_OF_MEMORY if the limit, the device or the host has no memory, or what the driver
 * returns. */
CUresult block_make(size_t size, struct lane *lane, struct block **out);
/* Forgets the block, and ends it unless a segment is being moved; else whoever moves the last one
 * ends it. */
void block_drop(struct block *block);
/* Frees an allocation of that size that no work uses any more: its block, or its part of a slab. */
void block_free(CUdeviceptr pointer, size_t size);
/* Makes a block of memory that the program has mapped. `handles` has one handle for each segment.
 * `access`: a bit for each device that may reach the memory. Returns NULL if the host is out of
 * memory. */
struct block *block_adopt(CUdeviceptr base, size_t size, struct lane *lane,
                          const CUmemAllocationProp *prop,
                          const CUmemGenericAllocationHandle *handles, uint64_t access);
/* Ends such a block, but not its memory, whose handles it stores in `handles`. Returns false, and
 * changes nothing, if a segment is evicted or is being moved. */
bool block_return(struct block *block, CUmemGenericAllocationHandle *handles);
/* Frees a forgotten block with its memory and its copies. */
void block_end(struct block *block);
/* Where the allocation lies that has the address: sets its base, device and id. Returns false if
 * there is none. */
bool block_place(CUdeviceptr pointer, struct memory_place *out);
/* Does the address lie in memory that the program has mapped itself? */
bool block_of_program(CUdeviceptr pointer);

#endif
