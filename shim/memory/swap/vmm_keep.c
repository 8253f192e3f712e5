/* vmm_keep.c: memory of the program's own that others come to know: it stays, as one object. */
#include "memory/swap/vmm_keep.h"

#include "base/locks.h"
#include "driver/lookup.h"
#include "memory/swap/vmm.h"
#include "memory/swap/vmm_whole.h"

/* The caller has taken a handle of the memory by vmm_hold(), which is given up here. */
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
	if (!vmm_ours(physical) || !vmm_hold(physical))
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

/* The first memory in the range that is in pieces. The caller gets a handle of it. */
static struct physical *in_pieces(CUdeviceptr base, size_t size)
{
	struct physical *found = NULL;
	struct mapping *mapping;

	lock_take(&vmm_lock);
	for (CUdeviceptr at = base; !found && at - base < size && (mapping = vmm_at(at));
	     at = mapping->base + mapping->size)
		if (mapping->physical->n > 1 && vmm_hold(mapping->physical))
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
