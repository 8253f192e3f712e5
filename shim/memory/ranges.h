/* ranges.h: the allocations of this process, by their first address; a handle that is a
 * pointer will do. */
#ifndef GPU_LEASE_RANGES_H
#define GPU_LEASE_RANGES_H

#include "memory/kind.h"

/* A range's bytes have been taken of the limit, and are given back with the range, unless
 * its kind does so. */
void memory_add(CUdeviceptr base, size_t size, CUdevice device, const struct memory_kind *kind,
                CUmemoryPool pool);
bool memory_find(CUdeviceptr base, struct memory_range *out);
bool memory_remove(CUdeviceptr base, struct memory_range *out); /* out may be NULL */
/* It is freed, or allocated again; what it was. False: nothing is there, or it is so already. */
bool memory_set_freed(CUdeviceptr base, bool freed, struct memory_range *out);
void memory_forget_pool(CUmemoryPool pool); /* it is gone, and what came from it is not */
void memory_forget(CUcontext context);      /* it is gone, with its ranges */

/* Bytes of each kind on a device. */
void memory_count(CUdevice device, enum memory_row row, int64_t bytes);
uint64_t memory_counted(enum memory_row row, CUdevice device);

struct memory_span {
	CUdeviceptr base;
	size_t size;
	unsigned long number; /* allocations are counted */
};
/* A copy of a kind's allocations on a device, newest first: of what fits not whole, a
 * program is likelier to be at what it made last. To be freed. */
struct memory_span *memory_spans(enum memory_row row, CUdevice device, size_t *n);

#endif
