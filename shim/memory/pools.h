/* pools.h: what is known of the program's memory pools. */
#ifndef GPU_LEASE_POOLS_H
#define GPU_LEASE_POOLS_H

#include <cuda.h>
#include <stdint.h>

enum pool_kind {
	POOL_IS_OURS,     /* its allocations get the kind that serves the device */
	POOL_STAYS_PLAIN, /* other processes may import it: plain memory, counted */
	POOL_NOT_OURS     /* its memory is not on a device */
};
enum pool_kind pool_kind(CUmemoryPool pool);
CUdevice pool_device(CUmemoryPool pool, CUdevice otherwise);
void pool_classify(CUmemoryPool pool, CUdevice device, enum pool_kind kind); /* device -1: none */
void pool_forget(CUmemoryPool pool);                                         /* it has ended */

void pool_change(CUmemoryPool pool, int64_t used, int64_t kept); /* adds so many bytes */
uint64_t pool_kept(CUmemoryPool pool);                           /* NULL: of all */
uint64_t pool_threshold(CUmemoryPool pool);
/* What our bytes add to an attribute that the driver reports. */
uint64_t pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute);
void pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value);

#endif
