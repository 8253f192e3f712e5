/* vmm_keep.c: memory that the program has created and that others come to know stays where it is,
 * as one object of the driver's. */
#include "memory/swap/vmm_keep.h"

#include "base/locks.h"
#include "driver/lookup.h"
#include "memory/swap/vmm.h"
#include "memory/swap/vmm_whole.h"

/* The caller has called vmm_retain(); this releases the handle again. */
static CUresult make_whole(struct physical *physical)
{
	CUresult result = vmm_make_whole(physical);

	lock_take(&vmm_lock);
	vmm_release(physical);
	lock_give(&vmm_lock);
	return result;
}

CUresult vmm_keep(CUmemGenericAllocationHandle *handle)
{
	struct physical *physical;
	CUresult result;

	lock_take(&vmm_lock);
	physical = vmm_find(*handle);
	if (vmm_ours(physical))
		physical->stays = true;
	lock_give(&vmm_lock);
	result = vmm_take_back_handle(*handle);
	if (result)
		return result;
	lock_take(&vmm_lock);
	physical = vmm_find(*handle);
	if (!vmm_ours(physical) || !vmm_retain(physical))
		physical = NULL;
	lock_give(&vmm_lock);
	if (!physical)
		return CUDA_SUCCESS;
	result = make_whole(physical);
	if (result)
		return result;
	lock_take(&vmm_lock);
	physical = vmm_find(*handle);
	if (vmm_ours(physical))
		*handle = physical->pieces[0];
	lock_give(&vmm_lock);
	return CUDA_SUCCESS;
}

/* The first memory in the range that has several pieces, or NULL. It is retained for the caller. */
static struct physical *in_pieces(CUdeviceptr base, size_t size)
{
	struct physical *found = NULL;
	struct mapping *mapping;

	lock_take(&vmm_lock);
	for (CUdeviceptr at = base; !found && at - base < size && (mapping = vmm_at(at));
	     at = mapping->base + mapping->size)
		if (mapping->physical->n > 1 && vmm_retain(mapping->physical))
			found = mapping->physical;
	lock_give(&vmm_lock);
	return found;
}

CUresult vmm_keep_range(CUdeviceptr base, size_t size)
{
	struct physical *physical;
	struct mapping *mapping;
	CUresult result;

	lock_take(&vmm_lock);
	for (CUdeviceptr at = base; at - base < size && (mapping = vmm_at(at));
	     at = mapping->base + mapping->size)
		mapping->physical->stays = true;
	lock_give(&vmm_lock);
	result = vmm_take_back(base, size);
	if (result)
		return result;
	while ((physical = in_pieces(base, size))) {
		result = make_whole(physical);
		if (result)
			return result;
	}
	return CUDA_SUCCESS;
}
