/* vmm_handles.c: the functions with which a program creates and releases physical memory. */
#include "base/compiler.h"
#include "base/locks.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "memory/kinds.h"
#include "memory/limit.h"
#include "memory/ranges.h"
#include "memory/shortage.h"
#include "memory/swap/lane.h"
#include "memory/vmm/vmm.h"

#include <stdlib.h>
#include <unistd.h>

/* Is a kernel module loaded that lets other devices reach device memory by its address, without a
 * call that we see? */
static bool memory_reached_unseen(void)
{
	static const char *const modules[] = {"/sys/module/nvidia_peermem",
	                                      "/sys/module/nv_peer_mem", "/sys/module/gdrdrv",
	                                      "/sys/module/nvidia_fs"};

	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
		if (!access(modules[i], F_OK))
			return true;
	return false;
}

/* Is memory with these properties swapped? Memory that can be exported is, until it is exported. */
static bool is_swappable(size_t size, const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUdevice device = prop->location.id;

	if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || flags ||
	    memory_kind_on(device) != &swapped_memory)
		return false;
	if (prop->allocFlags.compressionType || prop->allocFlags.usage || prop->win32HandleMetaData)
		return false;
	if (prop->allocFlags.gpuDirectRDMACapable && memory_reached_unseen())
		return false;
	return size && size % lane_of(device)->unit == 0;
}

/* Creates the next piece, of `size` bytes. `rest`: the bytes of it and of all later pieces, which
 * others are asked to free if the device is full. */
static CUresult create_piece(struct physical *physical, size_t size, size_t rest)
{
	__typeof__(&cuMemCreate) real = DRIVER(cuMemCreate);
	CUmemGenericAllocationHandle *handle = &physical->pieces[physical->n];
	struct shortage shortage = {0};
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	do
		result = real(handle, size, &physical->prop, 0);
	while (shortage_wait(&shortage, result, physical->device, rest));
	if (result)
		return result;
	physical->n++;
	memory_count_mapped(physical->device, (int64_t)size);
	return CUDA_SUCCESS;
}

static CUresult create_pieces(struct physical *physical)
{
	size_t piece = lane_of(physical->device)->piece, rest = physical->size;
	CUresult result = CUDA_SUCCESS;

	while (rest && !result) {
		size_t size = rest < piece ? rest : piece;

		result = create_piece(physical, size, rest);
		if (!result)
			rest -= size;
	}
	if (result) {
		vmm_release_pieces(physical);
		memory_count_mapped(physical->device, -(int64_t)(physical->size - rest));
	}
	return result;
}

static bool enter(struct physical *physical)
{
	bool entered;

	lock_take(&vmm_lock);
	entered = vmm_enter(physical);
	lock_give(&vmm_lock);
	return entered;
}

static CUresult create_ours(CUmemGenericAllocationHandle *handle, size_t size,
                            const CUmemAllocationProp *prop)
{
	size_t n = size / lane_of(prop->location.id)->piece + 1;
	struct physical *physical = calloc(1, sizeof(*physical) + n * sizeof(*handle));
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (!physical)
		return result;
	physical->size = size;
	physical->device = prop->location.id;
	physical->refs = 1;
	physical->prop = *prop;
	result = create_pieces(physical);
	if (result) {
		free(physical);
		return result;
	}
	if (!enter(physical)) { /* the host has no memory for the entry */
		vmm_release_pieces(physical);
		memory_count_mapped(physical->device, -(int64_t)size);
		free(physical);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*handle = physical->handle;
	return CUDA_SUCCESS;
}

/* Counts memory that the driver has created for the program. If the host has no memory for the
 * entry, it is not counted. */
static void note_created(CUmemGenericAllocationHandle handle, size_t size, CUdevice device)
{
	struct physical *physical = calloc(1, sizeof(*physical));

	if (physical)
		*physical =
		    (struct physical){.handle = handle, .size = size, .device = device, .refs = 1};
	if (physical && enter(physical)) {
		memory_count_mapped(device, (int64_t)size);
		return;
	}
	free(physical);
	limit_give(device, size);
}

static CUresult create_plain(CUmemGenericAllocationHandle *handle, size_t size,
                             const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct shortage shortage = {0};
	CUresult result;

	do
		result = DRIVER(cuMemCreate)(handle, size, prop, flags);
	while (shortage_wait(&shortage, result, prop->location.id, size));
	return result;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
	__typeof__(&cuMemCreate) real = DRIVER(cuMemCreate);
	bool counted = prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	CUdevice device = counted ? prop->location.id : -1;
	CUresult result;
	bool moves;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	if (!counted || !handle)
		return real(handle, size, prop, flags);
	result = limit_take(device, size);
	if (result)
		return result;
	moves = is_swappable(size, prop, flags);
	result = moves ? create_ours(handle, size, prop) : create_plain(handle, size, prop, flags);
	if (result)
		limit_give(device, size);
	else if (!moves)
		note_created(*handle, size, device);
	return result;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	__typeof__(&cuMemRetainAllocationHandle) real = DRIVER(cuMemRetainAllocationHandle);
	struct memory_place place;
	struct mapping *mapping;
	struct physical *physical;
	CUresult result = CUDA_SUCCESS;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	/* The driver's answer for allocations that were not made by cuMemCreate. */
	if (memory_locate((CUdeviceptr)address, &place))
		return CUDA_ERROR_INVALID_VALUE;
	lock_take(&vmm_lock);
	mapping = vmm_at((CUdeviceptr)address);
	physical = mapping && vmm_ours(mapping->physical) ? mapping->physical : NULL;
	if (physical && !vmm_retain(physical))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	else if (physical)
		*handle = physical->handle;
	else
		result = real(handle, address);
	if (!result && !physical && (physical = vmm_find(*handle)))
		physical->refs++;
	lock_give(&vmm_lock);
	return result;
}

/* vmm_lock is held during the driver's call, since the driver may use the handle's number again at
 * once. */
EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	__typeof__(&cuMemRelease) real = DRIVER(cuMemRelease);
	struct physical *physical;
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	lock_take(&vmm_lock);
	physical = vmm_find(handle);
	result = vmm_ours(physical) ? CUDA_SUCCESS : real(handle);
	if (!result && physical)
		vmm_release(physical);
	lock_give(&vmm_lock);
	return result;
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                       CUmemGenericAllocationHandle handle)
{
	__typeof__(&cuMemGetAllocationPropertiesFromHandle) real =
	    DRIVER(cuMemGetAllocationPropertiesFromHandle);
	struct physical *physical;
	bool known;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	lock_take(&vmm_lock);
	physical = vmm_find(handle);
	known = vmm_ours(physical) && prop;
	if (known)
		*prop = physical->prop;
	lock_give(&vmm_lock);
	return known ? CUDA_SUCCESS : real(prop, handle);
}
