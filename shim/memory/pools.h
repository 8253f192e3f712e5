/* pools.h: what is known of the program's memory pools.
 *
 * Any thread may call these functions. Amounts are bytes.
 */
#ifndef GPU_LEASE_POOLS_H
#define GPU_LEASE_POOLS_H

#include <cuda.h>
#include <stdint.h>

enum pool_kind {
	POOL_IS_OURS,     /* its allocations get the kind of memory that serves the device */
	POOL_STAYS_PLAIN, /* other processes may import it, so its memory stays fixed */
	POOL_NOT_OURS     /* its memory is not on a device */
};
enum pool_kind pool_kind(CUmemoryPool pool);
/* The pool's device, or `otherwise` if that is not known. */
CUdevice pool_device(CUmemoryPool pool, CUdevice otherwise);
/* device -1: the pool has none. */
void pool_classify(CUmemoryPool pool, CUdevice device, enum pool_kind kind);
/* The pool was destroyed. */
void pool_forget(CUmemoryPool pool);

/* Adds to the pool's used bytes, and to those it keeps for later allocations. */
void pool_change(CUmemoryPool pool, int64_t used, int64_t kept);
/* Bytes that the pool keeps; NULL: all pools. */
uint64_t pool_kept(CUmemoryPool pool);
/* How many bytes it may keep (CU_MEMPOOL_ATTR_RELEASE_THRESHOLD). */
uint64_t pool_threshold(CUmemoryPool pool);
/* How many bytes of ours to add to the attribute that the driver reports. */
uint64_t pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute);
void pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value);

#endif
