/* vmm_mappings.c: the functions with which a program maps physical memory. */
#include "base/compiler.h"
#include "base/locks.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/kinds.h"
#include "memory/vmm/vmm.h"
#include "memory/vmm/vmm_keep.h"

#include <stdlib.h>

EXPORT CUresult cuMemMap(CUdeviceptr base, size_t size, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	__typeof__(&cuMemMap) real = DRIVER(cuMemMap);
	struct physical *physical;
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = vmm_take_back_handle(handle); /* a block cannot hold memory that is mapped twice */
	if (result)
		return result;
	lock_take(&vmm_lock);
	physical = vmm_find(handle);
	result = vmm_ours(physical) ? vmm_map(physical, base, size, offset, flags)
	                            : real(base, size, offset, handle, flags);
	if (!result && vmm_ours(physical))
		physical->written = true;
	if (!result && !vmm_mapped(base, size, offset, physical) && vmm_ours(physical)) {
		DRIVER(cuMemUnmap)(base, size);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	lock_give(&vmm_lock);
	return result;
}

static void note_access(struct mapping *mapping, const CUmemAccessDesc *desc, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int d = desc[i].location.id;
		uint64_t bit = UINT64_C(1) << (d & 63);

		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || d < 0 ||
		    d >= MAX_DEVICES) {
			mapping->foreign_access = true;
			continue;
		}
		mapping->writers &= ~bit;
		mapping->readers &= ~bit;
		if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			mapping->writers |= bit;
		else if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
			mapping->readers |= bit;
	}
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr base, size_t size, const CUmemAccessDesc *desc, size_t n)
{
	__typeof__(&cuMemSetAccess) real = DRIVER(cuMemSetAccess);
	struct mapping *mapping;
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = vmm_take_back(base, size);
	if (result)
		return result;
	lock_take(&vmm_lock);
	result = real(base, size, desc, n);
	for (CUdeviceptr at = base; !result && at - base < size && (mapping = vmm_at(at));
	     at = mapping->base + mapping->size) {
		note_access(mapping, desc, n);
		vmm_make_block(mapping);
	}
	lock_give(&vmm_lock);
	return result;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr base, size_t size)
{
	__typeof__(&cuMemUnmap) real = DRIVER(cuMemUnmap);
	struct memory_place place;
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	if (memory_locate(base, &place))
		return CUDA_ERROR_INVALID_VALUE;
	result = vmm_take_back(base, size);
	if (result)
		return result;
	lock_take(&vmm_lock);
	result = real(base, size);
	if (!result)
		vmm_unmapped(base, size);
	lock_give(&vmm_lock);
	return result;
}

/* Maps memory into sparse arrays, from where it cannot be evicted any more. */
static CUresult map_array(__typeof__(&cuMemMapArrayAsync) real, const CUarrayMapInfo *list,
                          unsigned int n, CUstream stream)
{
	CUarrayMapInfo *changed = malloc(n * sizeof(*changed));
	CUresult result = changed ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	for (unsigned int i = 0; i < n && !result; i++) {
		changed[i] = list[i];
		if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP)
			result = vmm_keep(&changed[i].memHandle.memHandle);
	}
	if (!result)
		result = gate_enter(stream);
	if (!result) {
		result = real(changed, n, stream);
		gate_leave();
	}
	free(changed);
	return result;
}

EXPORT CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int n, CUstream stream)
{
	__typeof__(&cuMemMapArrayAsync) real = DRIVER(cuMemMapArrayAsync);

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	return list && n ? map_array(real, list, n, stream) : real(list, n, stream);
}

EXPORT CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned int n, CUstream stream)
{
	__typeof__(&cuMemMapArrayAsync_ptsz) real = DRIVER(cuMemMapArrayAsync_ptsz);

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	return list && n ? map_array(real, list, n, PER_THREAD(stream)) : real(list, n, stream);
}
