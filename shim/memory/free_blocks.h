/* free_blocks.h: blocks that were freed in stream order, for the next allocation. */
#ifndef GPU_LEASE_FREE_BLOCKS_H
#define GPU_LEASE_FREE_BLOCKS_H

#include "memory/kind.h"

size_t free_block_size(size_t size); /* of the block that serves an allocation of so much */
/* Takes a block that the pool keeps and the stream may use. False: there is none. */
bool free_block_reuse(CUdeviceptr *pointer, size_t size, CUdevice device, CUmemoryPool pool,
                      CUstream stream);
CUresult free_block_keep(CUdeviceptr pointer, const struct memory_range *range, CUstream stream);
void free_blocks_trim(CUmemoryPool pool, uint64_t most, bool wait); /* pool NULL: of all */

#endif
