/* ranges.h: the allocations of this process, by their first address, or by their handle where
 * they have no address. */
#ifndef GPU_LEASE_RANGES_H
#define GPU_LEASE_RANGES_H

#include "memory/kind.h"

/* The caller has counted the range's bytes against the limit. They are given back with the range,
 * unless its kind limits itself. */
void memory_add(CUdeviceptr base, size_t size, CUdevice device, const struct memory_kind *kind,
                CUmemoryPool pool);
bool memory_find(CUdeviceptr base, struct memory_range *out);
bool memory_remove(CUdeviceptr base, struct memory_range *out); /* out may be NULL */
/* Mark the range as freed, or as allocated again, and say what it was. False: there is no such
 * range, or it is marked so already. */
bool memory_set_freed(CUdeviceptr base, bool freed, struct memory_range *out);
void memory_forget_pool(CUmemoryPool pool); /* the pool has ended; its allocations live on */
void memory_forget(CUcontext context);      /* the context has ended, with its ranges */

/* Bytes of each kind on a device. */
void memory_count(CUdevice device, enum memory_row row, int64_t bytes);
/* Fixed memory that the program maps itself. */
void memory_count_mapped(CUdevice device, int64_t bytes);
uint64_t memory_mapped(CUdevice device);
uint64_t memory_counted(enum memory_row row, CUdevice device);

struct memory_span {
	CUdeviceptr base;
	size_t size;
	unsigned long number; /* allocations are counted */
};
/* The allocations of a kind on a device, newest first: where not all fit, a program more likely
 * uses what it made last. The caller frees the list. */
struct memory_span *memory_spans(enum memory_row row, CUdevice device, size_t *n);

#endif
