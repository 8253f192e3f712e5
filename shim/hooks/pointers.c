/* pointers.c: what is said of pointers into swapped memory.
 *
 * It is what the driver says of memory from cuMemAlloc, wherever the bytes are
 * now; the driver itself knows one mapping for each segment, or none. Of what the
 * program has mapped itself the driver is asked, when it is there.
 */
#include "base/compiler.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/kind.h"
#include "memory/swap/vmm.h"

#define ID_OF_OURS (UINT64_C(1) << 62) /* no number that the driver has come to */

#define ASK(pointer, call)                                                                         \
	do {                                                                                       \
		CUresult asked;                                                                    \
		if (!swap_of_program(pointer))                                                     \
			return call;                                                               \
		TRY(gate_look());                                                                  \
		asked = call;                                                                      \
		gate_leave();                                                                      \
		return asked;                                                                      \
	} while (0)

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer)
{
	struct memory_place place;

	NEED(cuMemGetAddressRange_v2);
	if (!memory_locate(pointer, &place))
		ASK(pointer, real(base, size, pointer));
	if (base)
		*base = place.base;
	if (size)
		*size = place.size;
	return CUDA_SUCCESS;
}

/* A handle would keep bytes, or be shown them, that we move. */
EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t size,
                                              CUmemRangeHandleType type, unsigned long long flags)
{
	struct memory_place place;

	NEED(cuMemGetHandleForAddressRange);
	if (memory_locate(pointer, &place))
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(vmm_keep_range(pointer, size));
	return real(handle, pointer, size, type, flags);
}

#define ANSWER(type, value)                                                                        \
	do {                                                                                       \
		*(type *)data = (value);                                                           \
		return CUDA_SUCCESS;                                                               \
	} while (0)

/* The numbers of attributes that older headers do not have stand for themselves. */
static CUresult attribute_of(const struct memory_place *place, int attribute, CUdeviceptr pointer,
                             void *data)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		ANSWER(CUcontext, place->context);
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		ANSWER(unsigned int, CU_MEMORYTYPE_DEVICE);
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		ANSWER(CUdeviceptr, pointer);
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		ANSWER(unsigned long long, ID_OF_OURS | place->id);
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		ANSWER(int, place->device);
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		ANSWER(CUdeviceptr, place->base);
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		ANSWER(size_t, place->size);
	case CU_POINTER_ATTRIBUTE_MAPPED:
		ANSWER(bool, true);
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		ANSWER(bool, false);
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		ANSWER(unsigned long long, 0);
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		ANSWER(int, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		ANSWER(void *, NULL);
	case 21: /* CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE */
		ANSWER(bool, false);
	case 22: /* CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL */
		ANSWER(int, -1);
	case CU_POINTER_ATTRIBUTE_HOST_POINTER: /* there is none */
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                      CUdeviceptr pointer)
{
	struct memory_place place;

	NEED(cuPointerGetAttribute);
	if (!data || !memory_locate(pointer, &place))
		ASK(pointer, real(data, attribute, pointer));
	return attribute_of(&place, (int)attribute, pointer, data);
}

/* Unlike the above it fails for no attribute that a pointer lacks. */
EXPORT CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes, void **data,
                                       CUdeviceptr pointer)
{
	struct memory_place place;

	NEED(cuPointerGetAttributes);
	if (!attributes || !data || !memory_locate(pointer, &place))
		ASK(pointer, real(n, attributes, data, pointer));
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
