/* alloc.c: allocations of memory that can be moved, and of fixed memory, which is counted. */
#include "base/compiler.h"
#include "driver/lookup.h"
#include "memory/kinds.h"
#include "memory/limit.h"
#include "memory/pools.h"
#include "memory/ranges.h"
#include "memory/shortage.h"
#include "tenant/tenant.h"

#include <stdlib.h>

/* Allocates memory of the kind that serves the current device. */
static CUresult allocate(CUdeviceptr *pointer, size_t size)
{
	CUdevice device;
	CUresult result;

	result = REAL(cuCtxGetDevice)(&device);
	if (result)
		return result;
	result = tenant_wait();
	if (result)
		return result;
	return memory_allocate(memory_kind_on(device), pointer, size, device, NULL);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size)
{
	__typeof__(&cuMemAlloc_v2) real = DRIVER(cuMemAlloc_v2);

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	if (!pointer || !size)
		return real(pointer, size); /* which returns the right error */
	return allocate(pointer, size);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                   unsigned int element)
{
	__typeof__(&cuMemAllocPitch_v2) real = DRIVER(cuMemAllocPitch_v2);
	const size_t unit =
	    512; /* bytes to which the driver has aligned rows on every device so far */

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	if (!pointer || !pitch || !width || !height ||
	    (element != 4 && element != 8 && element != 16) || width > SIZE_MAX / 2 / height)
		return real(pointer, pitch, width, height, element);
	*pitch = (width + unit - 1) / unit * unit;
	return allocate(pointer, *pitch * height);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t size, unsigned int flags)
{
	__typeof__(&cuMemAllocManaged) real = DRIVER(cuMemAllocManaged);
	CUdevice device;
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	if (!pointer || !size)
		return real(pointer, size, flags);
	result = REAL(cuCtxGetDevice)(&device);
	if (result)
		return result;
	result = limit_take(device, size);
	if (result)
		return result;
	result = real(pointer, size, flags);
	return memory_note(result, result ? 0 : *pointer, size, device, &managed_memory);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
	__typeof__(&cuMemFree_v2) real = DRIVER(cuMemFree_v2);
	struct memory_range range;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	/* The range is removed before the memory is freed, since another thread may be given the
	 * same address at once. */
	if (memory_find(pointer, &range) && range.freed)
		return CUDA_ERROR_INVALID_VALUE;
	if (!memory_remove(pointer, &range))
		return real(pointer);
	if (range.pool)
		pool_change(range.pool, -(int64_t)range.size, 0);
	return range.kind->free(pointer, &range, true);
}

/* -- the 32-bit forms of CUDA 3: the driver allocates, as it must choose the address ---- */

EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int size)
{
	__typeof__(&cuMemAlloc) real = DRIVER(cuMemAlloc);
	CUdevice device;
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = REAL(cuCtxGetDevice)(&device);
	if (result)
		return result;
	result = limit_take(device, size);
	if (result)
		return result;
	result = real(pointer, size);
	return memory_note(result, result ? 0 : *pointer, size, device, &fixed_memory);
}

EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width,
                                unsigned int height, unsigned int element)
{
	__typeof__(&cuMemAllocPitch) real = DRIVER(cuMemAllocPitch);
	size_t asked = (size_t)width * height, size = asked;
	CUdevice device;
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = REAL(cuCtxGetDevice)(&device);
	if (result)
		return result;
	result = limit_take(device, asked);
	if (result)
		return result;
	result = real(pointer, pitch, width, height, element);
	if (!result)
		size = (size_t)*pitch * height;
	limit_add(device, size - asked); /* the driver has made the rows longer */
	return memory_note(result, result ? 0 : *pointer, size, device, &fixed_memory);
}

EXPORT CUresult cuMemFree(CUdeviceptr_v1 pointer)
{
	__typeof__(&cuMemFree) real = DRIVER(cuMemFree);

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	memory_remove(pointer, NULL);
	return real(pointer);
}

/* -- arrays: entered by their handles, with the size of their descriptors ----- */

static size_t element_bytes(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	default: /* 32 bits; no packed or compressed format has more */
		return 4;
	}
}

static size_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	size_t height = d->Height ? d->Height : 1, depth = d->Depth ? d->Depth : 1;

	if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return 0; /* cuMemCreate counts the memory that will be mapped into them */
	return d->Width * height * depth * d->NumChannels * element_bytes(d->Format);
}

#define CREATE(name, handle_type, size, parameters, arguments)                                     \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		__typeof__(&name) real = DRIVER(name);                                             \
		CUdevice device;                                                                   \
		struct shortage shortage = {0};                                                    \
		CUresult result;                                                                   \
		size_t bytes;                                                                      \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		result = REAL(cuCtxGetDevice)(&device);                                            \
		if (result)                                                                        \
			return result;                                                             \
		bytes = d ? (size) : 0;                                                            \
		result = limit_take(device, bytes);                                                \
		if (result)                                                                        \
			return result;                                                             \
		do                                                                                 \
			result = real arguments;                                                   \
		while (shortage_wait(&shortage, result, device, bytes));                           \
		return memory_note(result, result ? 0 : (CUdeviceptr) * handle, bytes, device,     \
		                   &fixed_memory);                                                 \
	}

#define AS_3D(d)                                                                                   \
	&(CUDA_ARRAY3D_DESCRIPTOR)                                                                 \
	{                                                                                          \
		.Width = (d)->Width, .Height = (d)->Height, .Format = (d)->Format,                 \
		.NumChannels = (d)->NumChannels                                                    \
	}

#define AS_3D_V1(d)                                                                                \
	&(CUDA_ARRAY3D_DESCRIPTOR)                                                                 \
	{                                                                                          \
		.Width = (d)->Width, .Height = (d)->Height, .Depth = (d)->Depth,                   \
		.Format = (d)->Format, .NumChannels = (d)->NumChannels, .Flags = (d)->Flags        \
	}

/* All levels together have at most twice the bytes of the first, since each level has at most half
 * of the one before. */
#define WITH_LEVELS(bytes, levels) ((levels) > 1 ? 2 * (bytes) : (bytes))

CREATE(cuArrayCreate, CUarray, array_bytes(AS_3D(d)),
       (CUarray * handle, const CUDA_ARRAY_DESCRIPTOR_v1 *d), (handle, d))
CREATE(cuArrayCreate_v2, CUarray, array_bytes(AS_3D(d)),
       (CUarray * handle, const CUDA_ARRAY_DESCRIPTOR *d), (handle, d))
CREATE(cuArray3DCreate, CUarray, array_bytes(AS_3D_V1(d)),
       (CUarray * handle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d), (handle, d))
CREATE(cuArray3DCreate_v2, CUarray, array_bytes(d),
       (CUarray * handle, const CUDA_ARRAY3D_DESCRIPTOR *d), (handle, d))
CREATE(cuMipmappedArrayCreate, CUmipmappedArray, WITH_LEVELS(array_bytes(d), levels),
       (CUmipmappedArray * handle, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels),
       (handle, d, levels))

#define DESTROY(name, type)                                                                        \
	EXPORT CUresult name(type handle)                                                          \
	{                                                                                          \
		__typeof__(&name) real = DRIVER(name);                                             \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		memory_remove((CUdeviceptr)handle, NULL);                                          \
		return real(handle);                                                               \
	}

DESTROY(cuArrayDestroy, CUarray)
DESTROY(cuMipmappedArrayDestroy, CUmipmappedArray)

/* -- memory of other APIs ----------------------------------------------------- */

EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory,
                                       const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
	__typeof__(&cuImportExternalMemory) real = DRIVER(cuImportExternalMemory);
	CUresult result;
	CUdevice device;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = real(memory, description);
	if (result)
		return result;
	if (REAL(cuCtxGetDevice)(&device))
		return CUDA_SUCCESS;
	limit_add(device, description->size);
	memory_add((CUdeviceptr)*memory, description->size, device, &fixed_memory, NULL);
	return CUDA_SUCCESS;
}

DESTROY(cuDestroyExternalMemory, CUexternalMemory)
