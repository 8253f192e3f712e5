/* pointers.c: the attributes of pointers into swapped memory.
 *
 * They are those that the driver reports for memory of cuMemAlloc, wherever the bytes are now. The
 * driver itself knows a mapping for each segment, or none while that is evicted. For memory that
 * the program maps itself the driver is asked, once that memory is resident.
 */
#include "base/compiler.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/kinds.h"
#include "memory/shared.h"
#include "memory/swap/blocks.h"
#include "memory/vmm/vmm_keep.h"

#define ID_OF_OURS (UINT64_C(1) << 62) /* far above the numbers that the driver gives */

/* Around a question to the driver: memory that the program maps itself is resident meanwhile. */
static CUresult question_begins(CUdeviceptr pointer, bool *mapped)
{
	*mapped = block_of_program(pointer);
	return *mapped ? gate_enter_for_memory() : CUDA_SUCCESS;
}

static void question_ends(bool mapped)
{
	if (mapped)
		gate_leave();
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer)
{
	__typeof__(&cuMemGetAddressRange_v2) real = DRIVER(cuMemGetAddressRange_v2);
	struct memory_place place;
	CUresult result;
	bool mapped;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	if (!memory_locate(pointer, &place)) {
		result = question_begins(pointer, &mapped);
		if (result)
			return result;
		result = real(base, size, pointer);
		question_ends(mapped);
		return result;
	}
	if (base)
		*base = place.base;
	if (size)
		*size = place.size;
	return CUDA_SUCCESS;
}

/* A handle would refer to physical memory, which changes when we move the bytes. */
EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t size,
                                              CUmemRangeHandleType type, unsigned long long flags)
{
	__typeof__(&cuMemGetHandleForAddressRange) real = DRIVER(cuMemGetHandleForAddressRange);
	CUresult result;
	struct memory_place place;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	if (memory_locate(pointer, &place))
		return CUDA_ERROR_NOT_SUPPORTED;
	result = vmm_keep_range(pointer, size);
	if (result)
		return result;
	return real(handle, pointer, size, type, flags);
}

#define ANSWER(type, value) (*(type *)data = (value))

/* Attributes that older headers lack are given by their numbers. */
static CUresult attribute_of(const struct memory_place *place, int attribute, CUdeviceptr pointer,
                             void *data)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		ANSWER(CUcontext, place->context);
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		ANSWER(unsigned int, CU_MEMORYTYPE_DEVICE);
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		ANSWER(CUdeviceptr, pointer);
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		ANSWER(unsigned long long, ID_OF_OURS | place->id);
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		ANSWER(int, place->device);
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		ANSWER(CUdeviceptr, place->base);
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		ANSWER(size_t, place->size);
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		ANSWER(bool, true);
		break;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		ANSWER(bool, false);
		break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		ANSWER(bool, shared_can(place->base));
		break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		ANSWER(unsigned long long, 0);
		break;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		ANSWER(int, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		ANSWER(void *, NULL);
		break;
	case 21: /* CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE */
		ANSWER(bool, false);
		break;
	case 22: /* CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL */
		ANSWER(int, -1);
		break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER: /* there is none */
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                      CUdeviceptr pointer)
{
	__typeof__(&cuPointerGetAttribute) real = DRIVER(cuPointerGetAttribute);
	struct memory_place place;
	CUresult result;
	bool mapped;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	if (!data || !memory_locate(pointer, &place)) {
		result = question_begins(pointer, &mapped);
		if (result)
			return result;
		result = real(data, attribute, pointer);
		question_ends(mapped);
		return result;
	}
	return attribute_of(&place, (int)attribute, pointer, data);
}

/* Unlike cuPointerGetAttribute it does not fail for an attribute that the pointer does not have. */
EXPORT CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes, void **data,
                                       CUdeviceptr pointer)
{
	__typeof__(&cuPointerGetAttributes) real = DRIVER(cuPointerGetAttributes);
	struct memory_place place;
	CUresult result;
	bool mapped;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	if (!attributes || !data || !memory_locate(pointer, &place)) {
		result = question_begins(pointer, &mapped);
		if (result)
			return result;
		result = real(n, attributes, data, pointer);
		question_ends(mapped);
		return result;
	}
	for (unsigned int i = 0; i < n; i++) {
		if ((int)attributes[i] < 1 || (int)attributes[i] > 22)
			return CUDA_ERROR_INVALID_VALUE;
		if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
			*(void **)data[i] = NULL;
		else
			attribute_of(&place, (int)attributes[i], pointer, data[i]);
	}
	return CUDA_SUCCESS;
}
