/* vmm.c: the emulated libcuda: virtual memory management.
 *
 * A handle is the server's number for physical memory.
 */
#include "abi/client.h"

#include <string.h>
#include <sys/socket.h>

#define GRANULARITY (UINT64_C(2) << 20)
#define FILES ((unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)

static bool whole(uint64_t size)
{
	return size && size % GRANULARITY == 0;
}

/* Only memory of a device can be created, not host memory, and the only kind of handle is a
 * file. */
static CUresult check(const CUmemAllocationProp *prop)
{
	TRY(emu_ready());
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    prop->requestedHandleTypes & ~FILES)
		return CUDA_ERROR_NOT_SUPPORTED;
	return prop->location.id >= 0 && prop->location.id < emu_devices
	           ? CUDA_SUCCESS
	           : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                              CUmemAllocationGranularity_flags option)
{
	TRY(check(prop));
	if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
	                     option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		return CUDA_ERROR_INVALID_VALUE;
	*granularity = GRANULARITY;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment,
                                    CUdeviceptr wanted, unsigned long long flags)
{
	struct emu_request q = {.op = EMU_VMM_RESERVE, .arg = {size, alignment}};
	struct emu_reply r;

	EMU_POINT();
	(void)wanted; /* a wish, which the driver may grant */
	TRY(emu_ready());
	if (!out || flags || !whole(size) || (alignment & (alignment - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	TRY(emu_call(&q, &r, NULL));
	*out = r.r[0];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr base, size_t size)
{
	struct emu_request q = {.op = EMU_VMM_UNRESERVE, .arg = {base, size}};

	TRY(emu_ready());
	return emu_call(&q, NULL, NULL);
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct emu_request q = {.op = EMU_VMM_CREATE};
	struct emu_reply r;

	EMU_POINT();
	TRY(check(prop));
	TRY(emu_unsafe_call());
	if (!out || flags || !whole(size))
		return CUDA_ERROR_INVALID_VALUE;
	q.arg[0] = (uint64_t)prop->location.id;
	q.arg[1] = size;
	q.arg[2] = prop->requestedHandleTypes != 0;
	q.arg[3] = prop->allocFlags.gpuDirectRDMACapable;
	TRY(emu_call(&q, &r, NULL));
	*out = r.r[0];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct emu_request q = {.op = EMU_VMM_RELEASE, .arg = {handle}};

	TRY(emu_ready());
	return emu_call(&q, NULL, NULL);
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *pointer)
{
	struct emu_request q = {.op = EMU_VMM_RETAIN, .arg = {(uint64_t)(uintptr_t)pointer}};
	struct emu_reply r;

	TRY(emu_ready());
	TRY(emu_call(&q, &r, NULL));
	*out = r.r[0];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                       CUmemGenericAllocationHandle handle)
{
	struct emu_request q = {.op = EMU_VMM_DEVICE, .arg = {handle}};
	struct emu_reply r;

	TRY(emu_ready());
	TRY(emu_call(&q, &r, NULL));
	*prop = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED};
	prop->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop->location.id = (int)r.r[0];
	if (r.r[1])
		prop->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	prop->allocFlags.gpuDirectRDMACapable = r.r[2] != 0;
	return CUDA_SUCCESS;
}

/* The file is a connection with the server, so memory lives as long as a process has it open. */
EXPORT CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType type,
                                             unsigned long long flags)
{
	struct emu_request q = {.op = EMU_VMM_DEVICE, .arg = {handle}};
	struct emu_reply r;
	int file;

	TRY(emu_ready());
	TRY(emu_call(&q, &r, NULL));
	if (!out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !r.r[1])
		return CUDA_ERROR_INVALID_VALUE;
	file = emu_open_file(handle);
	if (file < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)out = file;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *file,
                                               CUmemAllocationHandleType type)
{
	struct emu_request q = {.op = EMU_VMM_HOLD};
	struct emu_file found;

	TRY(emu_ready());
	if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    recv((int)(intptr_t)file, &found, sizeof(found), MSG_PEEK | MSG_DONTWAIT) !=
	        (ssize_t)sizeof(found) ||
	    memcmp(found.mark, EMU_FILE_MARK, sizeof(found.mark)))
		return CUDA_ERROR_INVALID_VALUE;
	q.arg[0] = found.id;
	if (emu_call(&q, NULL, NULL))
		return CUDA_ERROR_NOT_SUPPORTED;
	*out = found.id;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemMap(CUdeviceptr base, size_t size, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct emu_request q = {.op = EMU_VMM_MAP, .arg = {base, size, handle, offset}};

	TRY(emu_ready());
	if (flags || !whole(size) || base % GRANULARITY || offset % GRANULARITY)
		return CUDA_ERROR_INVALID_VALUE;
	return emu_call(&q, NULL, NULL);
}

EXPORT CUresult cuMemUnmap(CUdeviceptr base, size_t size)
{
	struct emu_request q = {.op = EMU_VMM_UNMAP, .arg = {base, size}};

	EMU_POINT();
	TRY(emu_ready());
	TRY(emu_unsafe_call());
	return emu_call(&q, NULL, NULL);
}

static bool bits(CUmemAccess_flags flags, uint64_t *out)
{
	*out = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? EMU_READABLE | EMU_WRITABLE
	       : flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? EMU_READABLE
	                                                   : 0;
	return flags <= CU_MEM_ACCESS_FLAGS_PROT_READWRITE && (int)flags != 2;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr base, size_t size, const CUmemAccessDesc *desc,
                               size_t count)
{
	struct emu_request q = {.op = EMU_VMM_PROTECT, .arg = {base, size}};
	uint64_t access;

	TRY(emu_ready());
	if (!desc || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		int device = desc[i].location.id;

		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return CUDA_ERROR_NOT_SUPPORTED;
		if (device < 0 || device >= emu_devices || !bits(desc[i].flags, &access))
			return CUDA_ERROR_INVALID_VALUE;
		/* If a device is named twice the later entry counts; devices that are not named
		 * keep their access. */
		q.arg[2] |= UINT64_C(1) << device;
		q.arg[3] &= ~(UINT64_C(3) << 2 * device);
		q.arg[3] |= access << 2 * device;
	}
	return emu_call(&q, NULL, NULL);
}

EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                               CUdeviceptr pointer)
{
	struct emu_request q = {.op = EMU_VMM_ACCESS, .arg = {pointer}};
	struct emu_reply r;

	TRY(emu_ready());
	if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (location->id < 0 || location->id >= emu_devices)
		return CUDA_ERROR_INVALID_DEVICE;
	q.arg[1] = (uint64_t)location->id;
	TRY(emu_call(&q, &r, NULL));
	/* CUDA's numbers for none, read, and read and write are these bits. */
	*flags = r.r[0];
	return CUDA_SUCCESS;
}
