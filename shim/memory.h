/* memory.h: what this process has of device memory. */
#ifndef GPU_LEASE_MEMORY_H
#define GPU_LEASE_MEMORY_H

#include "shim.h"

enum memory_kind {
	MEMORY_MANAGED, /* the driver can evict it */
	MEMORY_FIXED,   /* plain: it stays where it is */
	MEMORY_UNKNOWN  /* not one of ours */
};

/* memory.c. Ranges are known by their first address; a handle that is a pointer will do. */
void memory_add(CUdeviceptr base, size_t size, CUdevice device, enum memory_kind kind,
                CUmemoryPool pool);
void memory_remove(CUdeviceptr base);
enum memory_kind memory_kind_of(CUdeviceptr base);
void memory_count(CUdevice device, enum memory_kind kind, int64_t bytes);
uint64_t memory_used_by_job(CUdevice device);

/* Would so many bytes more on the device be too many? The driver's own error, then. */
CUresult memory_room(size_t size, CUdevice device);

/* ordered.c: frees that wait for their stream. */
void free_deferred(bool wait);

/* pools.c */
enum pool_kind {
	POOL_BECOMES_MANAGED,
	POOL_STAYS_PLAIN, /* others may import it: counted */
	POOL_NOT_OURS     /* its memory is not on a device */
};
enum pool_kind pool_kind(CUmemoryPool pool);
CUdevice pool_device(CUmemoryPool pool, CUdevice otherwise);
void pool_count(CUmemoryPool pool, int64_t bytes);

#endif
