/* vmm.c: physical memory that the program creates and maps itself.
 *
 * It counts against the limit from its creation until its handle is released and nothing maps it
 * any more. It is fixed memory, unless it can be swapped.
 *
 * With memory:swap, memory that can be swapped is created in pieces, and the program gets a handle
 * of ours, since the driver's handles change with every restore. The memory is a block while it is
 * mapped once and as a whole, and its own device may write to it. Otherwise it stays on the device,
 * and it does so for good from the moment that something outside this process may refer to it
 * (KEEPS in hooks.def); what is exported becomes one object of the driver's (vmm_keep.c). A call
 * that needs the driver's mapping or handle first ends the block, and waits until its memory is
 * restored (vmm_take_back()). The calls themselves are in hooks/vmm_mappings.c.
 */
#include "memory/vmm/vmm.h"

#include "base/clock.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/limit.h"
#include "memory/ranges.h"
#include "memory/shortage.h"
#include "memory/swap/blocks.h"
#include "memory/swap/lane.h"

#include <search.h>
#include <stdlib.h>

#define OURS (UINT64_C(1) << 63) /* set in our handles, and in none of the driver's */

static void *by_handle, *by_base; /* trees of search.h */
struct lock vmm_lock = LOCK(LOCK_MAPPED);
static uint64_t n_ours; /* handles of ours so far */

static int compare_handles(const void *a, const void *b)
{
	const struct physical *x = a, *y = b;

	return (x->handle > y->handle) - (x->handle < y->handle);
}

/* Mappings do not overlap. A key that lies in a mapping is equal to it. */
static int compare_bases(const void *a, const void *b)
{
	const struct mapping *x = a, *y = b;

	return x->base + x->size <= y->base ? -1 : x->base >= y->base + y->size;
}

/* -- physical memory and mappings; the caller holds vmm_lock --------------------- */

struct physical *vmm_find(CUmemGenericAllocationHandle handle)
{
	struct physical key = {.handle = handle};
	void *node = tfind(&key, &by_handle, compare_handles);

	return node ? *(struct physical **)node : NULL;
}

struct mapping *vmm_at(CUdeviceptr address)
{
	struct mapping key = {.base = address, .size = 1};
	void *node = tfind(&key, &by_base, compare_bases);

	return node ? *(struct mapping **)node : NULL;
}

bool vmm_ours(const struct physical *physical)
{
	return physical && physical->handle & OURS;
}

void vmm_release_pieces(struct physical *physical)
{
	while (physical->n)
		DRIVER(cuMemRelease)(physical->pieces[--physical->n]);
}

static void drop_if_unused(struct physical *physical)
{
	if (physical->refs || physical->maps)
		return;
	vmm_release_pieces(physical);
	memory_count_mapped(physical->device, -(int64_t)physical->size);
	limit_give(physical->device, physical->size);
	free(physical);
}

/* A released handle is not found any more even if the memory is still mapped: the driver may give
 * the same number to other memory. */
void vmm_release(struct physical *physical)
{
	if (--physical->refs == 0)
		tdelete(physical, &by_handle, compare_handles);
	drop_if_unused(physical);
}

struct mapping *vmm_mapped(CUdeviceptr base, size_t size, size_t offset, struct physical *physical)
{
	struct mapping *mapping = physical ? calloc(1, sizeof(*mapping)) : NULL;

	if (!mapping)
		return NULL;
	*mapping = (struct mapping){.base = base,
	                            .size = size,
	                            .offset = offset,
	                            .physical = physical,
	                            .next = physical->mappings};
	if (!tsearch(mapping, &by_base, compare_bases)) {
		free(mapping);
		return NULL;
	}
	physical->mappings = mapping;
	physical->maps++;
	return mapping;
}

static void unlink_mapping(struct mapping *mapping)
{
	struct mapping **at = &mapping->physical->mappings;

	while (*at != mapping)
		at = &(*at)->next;
	*at = mapping->next;
	mapping->physical->maps--;
}

/* One call of the program's may unmap several adjacent mappings. */
void vmm_unmapped(CUdeviceptr base, size_t size)
{
	CUdeviceptr end = base + size;
	struct mapping *mapping;

	while (base < end && (mapping = vmm_at(base))) {
		base = mapping->base + mapping->size;
		tdelete(mapping, &by_base, compare_bases);
		unlink_mapping(mapping);
		drop_if_unused(mapping->physical);
		free(mapping);
	}
}

/* Memory that has no handle yet gets one of ours. */
bool vmm_enter(struct physical *physical)
{
	if (!physical->handle)
		physical->handle = OURS | ++n_ours;
	return tsearch(physical, &by_handle, compare_handles) != NULL;
}

bool vmm_retain(struct physical *physical)
{
	if (!physical->refs && !vmm_enter(physical))
		return false;
	physical->refs++;
	return true;
}

/* All pieces but the last have the same size. */
CUresult vmm_map(const struct physical *physical, CUdeviceptr base, size_t size, size_t offset,
                 unsigned long long flags)
{
	size_t piece = physical->n > 1 ? lane_of(physical->device)->piece : physical->size;
	CUresult result = CUDA_SUCCESS;
	size_t done = 0;

	if (!size || size > physical->size || offset > physical->size - size)
		return CUDA_ERROR_INVALID_VALUE;
	while (done < size && !result) {
		size_t within = (offset + done) % piece, n = piece - within;

		n = n < size - done ? n : size - done;
		result = DRIVER(cuMemMap)(base + done, n, within,
		                          physical->pieces[(offset + done) / piece], flags);
		if (!result)
			done += n;
	}
	if (result && done)
		DRIVER(cuMemUnmap)(base, done);
	return result;
}

/* -- making and ending blocks; the caller holds vmm_lock ------------------------------ */

static bool may_be_swapped(const struct mapping *mapping)
{
	const struct physical *physical = mapping->physical;

	return vmm_ours(physical) && !physical->stays && physical->maps == 1 &&
	       !mapping->foreign_access && !mapping->readers && mapping->size == physical->size &&
	       mapping->writers >> physical->device & 1;
}

void vmm_make_block(struct mapping *mapping)
{
	struct physical *physical = mapping->physical;

	if (!may_be_swapped(mapping))
		return;
	/* In this order the daemon may hear of too little memory for a moment, never of too much.
	 */
	memory_count_mapped(physical->device, -(int64_t)physical->size);
	mapping->block = block_adopt(mapping->base, mapping->size, lane_of(physical->device),
	                             &physical->prop, physical->pieces, mapping->writers);
	if (!mapping->block)
		memory_count_mapped(physical->device, (int64_t)physical->size);
	else
		physical->swapped = mapping;
}

/* Returns false if a segment is evicted or is being moved. */
static bool end_block(struct mapping *mapping)
{
	struct physical *physical = mapping->physical;

	if (!block_return(mapping->block, physical->pieces))
		return false;
	mapping->block = NULL;
	physical->swapped = NULL;
	memory_count_mapped(physical->device, (int64_t)physical->size);
	return true;
}

/* -- taking memory back from blocks; the caller does not hold vmm_lock ---------------- */

static bool end_blocks(CUdeviceptr base, size_t size)
{
	struct mapping *mapping;
	bool all = true;

	lock_take(&vmm_lock);
	for (CUdeviceptr at = base; all && at - base < size && (mapping = vmm_at(at));
	     at = mapping->base + mapping->size)
		all = !mapping->block || end_block(mapping);
	lock_give(&vmm_lock);
	return all;
}

/* The wait is limited because gate_enter_for_memory() does not wait in a call that the driver makes
 * inside another call. */
CUresult vmm_take_back(CUdeviceptr base, size_t size)
{
	uint64_t start = now_ns();
	bool all = end_blocks(base, size);
	CUresult result;

	while (!all) {
		if (now_ns() - start >
		    EVICTION_WAIT_NS) /* a call inside a call must not wait for memory */
			return CUDA_ERROR_NOT_READY;
		result = gate_enter_for_memory();
		if (result)
			return result;
		all = end_blocks(base, size);
		gate_leave();
		if (!all)
			pause_us(EVICTION_PAUSE_US);
	}
	return CUDA_SUCCESS;
}

CUresult vmm_take_back_handle(CUmemGenericAllocationHandle handle)
{
	struct mapping where = {0};
	struct physical *physical;

	lock_take(&vmm_lock);
	physical = vmm_find(handle);
	if (vmm_ours(physical) && physical->swapped)
		where = *physical->swapped;
	lock_give(&vmm_lock);
	return vmm_take_back(where.base, where.size);
}

static void in_child(void)
{
	lock_after_fork(&vmm_lock);
	by_handle = by_base = NULL; /* they are the parent's */
}
FORK_WATCH(in_child);
