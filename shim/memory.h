/* memory.h: what this process has of device memory. */
#ifndef GPU_LEASE_MEMORY_H
#define GPU_LEASE_MEMORY_H

#include "shim.h"

enum memory_kind {
	MEMORY_MANAGED, /* the driver can evict it */
	MEMORY_FIXED    /* plain: it stays where it is */
};

struct memory_range {
	size_t size;
	CUdevice device;
	enum memory_kind kind;
	CUmemoryPool pool;
	CUcontext context; /* that it ends with */
};

/* memory.c. Ranges are known by their first address; a handle that is a pointer will do. */
void memory_add(CUdeviceptr base, size_t size, CUdevice device, enum memory_kind kind,
                CUmemoryPool pool);
bool memory_find(CUdeviceptr base, struct memory_range *out);
bool memory_remove(CUdeviceptr base, struct memory_range *out); /* out may be NULL */
void memory_forget(CUcontext context);                          /* it is gone, with its ranges */
void memory_count(CUdevice device, enum memory_kind kind, int64_t bytes);
uint64_t memory_used_by_job(CUdevice device);

/* Would so many bytes more on the device be too many? The driver's own error, then. */
CUresult memory_room(size_t size, CUdevice device);

/* ordered.c: blocks that pools keep for the next allocation. */
void ordered_trim(CUmemoryPool pool, uint64_t most, bool wait); /* pool NULL: all */
void ordered_forget(CUcontext context);

/* pools.c */
enum pool_kind {
	POOL_BECOMES_MANAGED,
	POOL_STAYS_PLAIN, /* others may import it: counted */
	POOL_NOT_OURS     /* its memory is not on a device */
};
enum pool_kind pool_kind(CUmemoryPool pool);
CUdevice pool_device(CUmemoryPool pool, CUdevice otherwise);
void pool_change(CUmemoryPool pool, int64_t used, int64_t kept); /* by so many bytes */
uint64_t pool_kept(CUmemoryPool pool);                           /* NULL: of all */
uint64_t pool_threshold(CUmemoryPool pool);

#endif
