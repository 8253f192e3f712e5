/* ranges.h: the allocations of this process, by their first address, or by their handle if they
 * have no address.
 *
 * Any thread may call these functions. Amounts are bytes.
 */
#ifndef GPU_LEASE_RANGES_H
#define GPU_LEASE_RANGES_H

#include "memory/kind.h"

/* Adds an allocation. The caller has counted its bytes against the limit. They are given back when
 * it is removed, unless its kind limits itself. */
void memory_add(CUdeviceptr base, size_t size, CUdevice device, const struct memory_kind *kind,
                CUmemoryPool pool);
/* Return false if no allocation begins there. memory_remove()'s `out` may be NULL. */
bool memory_find(CUdeviceptr base, struct memory_range *out);
bool memory_remove(CUdeviceptr base, struct memory_range *out);
/* Marks the allocation as freed by the program, or as allocated again. Returns false if no
 * allocation begins there, or if it has that mark already. */
bool memory_set_freed(CUdeviceptr base, bool freed, struct memory_range *out);
/* The pool was destroyed. Its allocations remain. */
void memory_forget_pool(CUmemoryPool pool);
/* The context has ended, and its allocations with it. */
void memory_forget(CUcontext context);

/* Adds to the bytes of a kind on the device. */
void memory_count(CUdevice device, enum memory_row row, int64_t bytes);
/* Adds to its fixed bytes, as memory that the program maps itself. */
void memory_count_mapped(CUdevice device, int64_t bytes);
uint64_t memory_mapped(CUdevice device);
uint64_t memory_counted(enum memory_row row, CUdevice device);

struct memory_span {
	CUdeviceptr base;
	size_t size;
	unsigned long number; /* later allocations have higher numbers */
};
/* The allocations of a kind on a device, the newest first, because a program more likely uses what
 * it has allocated last. The caller frees the list. *n: its length. */
struct memory_span *memory_spans(enum memory_row row, CUdevice device, size_t *n);

#endif
