/* free_blocks.h: memory that was freed in stream order is kept for the next allocation.
 *
 * Threads of the program call these functions, without any lock.
 */
#ifndef GPU_LEASE_FREE_BLOCKS_H
#define GPU_LEASE_FREE_BLOCKS_H

#include "memory/kind.h"

/* How large, in bytes, the block is that serves an allocation of `size` bytes. */
size_t free_block_size(size_t size);
/* Takes a block that the pool keeps and that the stream may use. Returns false if there is none. */
bool free_block_reuse(CUdeviceptr *pointer, size_t size, CUdevice device, CUmemoryPool pool,
                      CUstream stream);
/* Keeps a block that was freed in the stream. Errors: CUDA_ERROR_OUT_OF_MEMORY if the host has no
 * memory, or what the driver returns; then the block is not kept. */
CUresult free_block_keep(CUdeviceptr pointer, const struct memory_range *range, CUstream stream);
/* Frees kept blocks of the pool (NULL: of all pools) until no more than `most` bytes are kept. With
 * `wait` it waits for the work that uses them; else it skips those blocks. */
void free_blocks_trim(CUmemoryPool pool, uint64_t most, bool wait);

#endif
