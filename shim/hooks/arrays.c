/* arrays.c: arrays, mipmapped arrays and memory of other APIs. All of it is fixed memory, which is
 * counted. It is entered by its handle, with the size that its descriptor gives. */
#include "base/compiler.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/kinds.h"
#include "memory/limit.h"
#include "memory/ranges.h"
#include "memory/shortage.h"

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
		CUresult result;                                                                   \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		result = gate_enter_unless_stopped();                                              \
		if (result)                                                                        \
			return result;                                                             \
		memory_remove((CUdeviceptr)handle, NULL);                                          \
		result = real(handle);                                                             \
		gate_leave();                                                                      \
		return result;                                                                     \
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
