/* shared_map.c: maps a block of another process in this one.
 *
 * Its segments are imported as they come, and mapped at adjacent addresses. The mappings keep the
 * memory if the other process ends.
 */
#include "memory/shared_map.h"

#include "driver/devices.h"
#include "driver/lookup.h"
#include "memory/shared_parts.h"
#include "memory/swap/segments.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void import_unmap(struct import *import)
{
	if (import->mapped)
		DRIVER(cuMemUnmap)(import->base, import->mapped);
	import->mapped = 0;
}

void import_drop(struct import *import)
{
	import_unmap(import);
	if (import->base)
		REAL(cuMemAddressFree)(import->base, import->size);
	while (import->opened) {
		struct opened *o = import->opened;

		import->opened = o->next;
		free(o);
	}
	free(import);
}

static CUresult map_one(struct import *import, int file, size_t size)
{
	CUmemGenericAllocationHandle handle;
	CUresult result;

	result = REAL(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)file,
	                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (result)
		return result;
	result = DRIVER(cuMemMap)(import->base + import->mapped, size, 0, handle, 0);
	DRIVER(cuMemRelease)(handle); /* the mapping keeps the memory */
	if (!result)
		import->mapped += size;
	return result;
}

static CUresult map_part(struct import *import, const struct shared_part *part, const int *files)
{
	CUresult result = CUDA_SUCCESS;

	if (!import->base) {
		result = REAL(cuMemAddressReserve)(&import->base, part->size, 0, 0, 0);
		if (result)
			return result;
		import->size = part->size;
	}
	if (import->size != part->size)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < part->n && !result; i++) {
		size_t left = import->size - import->mapped;

		result = map_one(import, files[i], left < part->piece ? left : part->piece);
	}
	return result;
}

/* Maps the whole block, part by part. *last: the last part, which describes the block as all do. */
static CUresult map_all(struct import *import, int end, struct shared_part *last)
{
	struct shared_part part = {0}, before = {0};
	int files[SHARED_AT_ONCE];
	CUresult result;
	size_t n;

	do {
		result = part_receive(end, import->lent, &part, files, &n);
		if (!result && (!part_follows(&part, &before) || n != part.n))
			result = CUDA_ERROR_INVALID_VALUE;
		if (!result && map_part(import, &part, files))
			result = CUDA_ERROR_MAP_FAILED;
		while (n)
			close(files[--n]);
		before = part;
	} while (!result && part.first + part.n < part.total);
	*last = part;
	return result;
}

/* This process's number of the memory's device; below 0: the process does not see it. */
static CUdevice device_with(const uint8_t uuid[GL_UUID_BYTES])
{
	int n = 0;

	if (!REAL(cuDeviceGetCount) || REAL(cuDeviceGetCount)(&n))
		return -1;
	for (CUdevice d = 0; d < n && d < MAX_DEVICES; d++)
		if (device_uuid(d) && !memcmp(device_uuid(d), uuid, GL_UUID_BYTES))
			return d;
	return -1;
}

/* Who may reach it: the current context's device and the memory's own device. */
static CUresult find_devices(struct import *import, const uint8_t uuid[GL_UUID_BYTES])
{
	CUdevice current, own = device_with(uuid);

	CUresult result = REAL(cuCtxGetDevice)(&current);

	if (result)
		return result;
	import->device = own >= 0 ? own : current;
	import->devices = UINT64_C(1) << current | UINT64_C(1) << import->device;
	return CUDA_SUCCESS;
}

static CUresult give_access(const struct import *import)
{
	return segments_set_access(import->base, import->size, import->devices, 0)
	           ? CUDA_ERROR_MAP_FAILED
	           : CUDA_SUCCESS;
}

CUresult import_map(const struct shared_handle *handle, int end, struct import **out,
                    size_t *allocation)
{
	struct import *import = calloc(1, sizeof(*import));
	struct shared_part part;
	CUresult result;

	if (!import)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(import->name, handle->name, sizeof(import->name));
	import->block = handle->block;
	REAL(cuCtxGetCurrent)(&import->context);
	result = map_all(import, end, &part);
	if (!result)
		result = find_devices(import, part.uuid);
	if (!result)
		result = give_access(import);
	if (result) {
		import_drop(import);
		return result;
	}
	import->offset = handle->offset;
	import->lent = part.lent;
	*allocation = part.allocation;
	*out = import;
	return CUDA_SUCCESS;
}

CUresult import_map_again(struct import *import, int end)
{
	struct shared_part part;
	CUresult result = map_all(import, end, &part);

	if (!result)
		result = give_access(import);
	if (result)
		import_unmap(import);
	return result;
}
