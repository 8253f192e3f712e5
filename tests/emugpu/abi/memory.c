/* memory.c: the emulated libcuda: allocation, pointer attributes and prefetches. */
#include "abi/client.h"

bool emu_is_device(uint64_t pointer)
{
	return pointer >= EMU_FIRST_ADDRESS && pointer < EMU_LAST_ADDRESS;
}

CUresult emu_allocate(CUdeviceptr *out, size_t size, enum emu_memory kind)
{
	struct emu_request q = {.op = EMU_ALLOC};
	struct emu_reply r;
	struct emu_ctx *ctx;
	CUresult result;

	TRY(emu_need_ctx(&ctx));
	TRY(emu_unsafe_call());
	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	q.arg[0] = emu_owner(ctx)->id;
	q.arg[1] = size;
	q.arg[2] = kind;
	result = emu_sticky(ctx, emu_call(&q, &r, NULL));
	if (!result)
		*out = r.r[0];
	return result;
}

EXPORT CUresult cuMemAlloc(CUdeviceptr *out, size_t size)
{
	return emu_allocate(out, size, EMU_PLAIN);
}

EXPORT CUresult cuMemAllocPitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                                unsigned int element)
{
	(void)element;
	*pitch = (width + 511) / 512 * 512;
	return emu_allocate(out, *pitch * height, EMU_PLAIN);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
	EMU_POINT();
	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	return emu_allocate(out, size, EMU_MANAGED);
}

EXPORT CUresult cuMemFree(CUdeviceptr pointer)
{
	struct emu_request q = {.op = EMU_RANGE, .arg = {pointer}};
	struct emu_ctx *ctx;
	struct emu_reply r;

	TRY(emu_ready());
	if (!pointer)
		return CUDA_SUCCESS;
	TRY(emu_unsafe_call());
	TRY(emu_call(&q, &r, NULL));
	if (r.r[2] == EMU_PHYSICAL || r.r[2] == EMU_IMPORTED)
		return CUDA_ERROR_INVALID_VALUE;
	/* Pooled memory belongs to no context. */
	q = (struct emu_request){.op = EMU_FREE, .arg = {r.r[3], pointer}};
	if (!q.arg[0]) {
		TRY(emu_need_ctx(&ctx));
		q.arg[0] = emu_owner(ctx)->id;
	}
	return emu_call(&q, NULL, NULL);
}

EXPORT CUresult cuMemGetInfo(size_t *free_bytes, size_t *total)
{
	struct emu_request q = {.op = EMU_MEM_INFO};
	struct emu_reply r;
	struct emu_ctx *ctx;

	TRY(emu_need_ctx(&ctx));
	q.arg[0] = (uint64_t)ctx->device;
	TRY(emu_call(&q, &r, NULL));
	*free_bytes = r.r[0];
	*total = r.r[1];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr pointer)
{
	struct emu_request q = {.op = EMU_RANGE, .arg = {pointer}};
	struct emu_reply r;

	TRY(emu_ready());
	if (emu_call(&q, &r, NULL))
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = r.r[0];
	if (size)
		*size = r.r[1];
	return CUDA_SUCCESS;
}

/* Attributes of a range of device memory. */
static CUresult attribute_of(const struct emu_reply *range, CUpointer_attribute attribute,
                             CUdeviceptr pointer, void *data)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)data = range->r[2] == EMU_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = pointer;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = (int)range->r[4];
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = range->r[0];
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = range->r[1];
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult attribute_of_host(CUpointer_attribute attribute, CUdeviceptr pointer, void *data)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = CU_MEMORYTYPE_HOST;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(CUdeviceptr *)data = pointer;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                      CUdeviceptr pointer)
{
	struct emu_request q = {.op = EMU_RANGE, .arg = {pointer}};
	struct emu_reply r;

	TRY(emu_ready());
	if (emu_is_pinned((void *)(uintptr_t)pointer, 1))
		return attribute_of_host(attribute, pointer, data);
	TRY(emu_call(&q, &r, NULL));
	return attribute_of(&r, attribute, pointer, data);
}

/* Unlike the above: a pointer that CUDA does not know is no error, its attributes are 0. */
EXPORT CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes, void **data,
                                       CUdeviceptr pointer)
{
	struct emu_request q = {.op = EMU_RANGE, .arg = {pointer}};
	struct emu_reply r;

	TRY(emu_ready());
	if (emu_call(&q, &r, NULL))
		r = (struct emu_reply){0};
	for (unsigned i = 0; i < n; i++) {
		if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE && !r.r[0])
			*(unsigned *)data[i] =
			    emu_is_pinned((void *)(uintptr_t)pointer, 1) ? CU_MEMORYTYPE_HOST : 0;
		else
			TRY(attribute_of(&r, attributes[i], r.r[0] ? pointer : 0, data[i]));
	}
	return CUDA_SUCCESS;
}

static CUresult prefetch(CUdeviceptr pointer, size_t size, bool to_device, CUstream stream)
{
	struct emu_request range = {.op = EMU_RANGE, .arg = {pointer}};
	struct emu_request q = {.op = EMU_PREFETCH, .arg = {0, pointer, size, to_device}};
	struct emu_reply r;

	TRY(emu_ready());
	TRY(emu_call(&range, &r, NULL));
	if (r.r[2] != EMU_MANAGED || size > r.r[0] + r.r[1] - pointer)
		return CUDA_ERROR_INVALID_VALUE;
	return emu_submit(stream, &q, NULL);
}

#undef cuMemPrefetchAsync
CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t size, CUdevice device, CUstream stream);
EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t size, CUdevice device,
                                   CUstream stream)
{
	return prefetch(pointer, size, device != CU_DEVICE_CPU, emu_legacy(stream));
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr pointer, size_t size, CUdevice device,
                                 CUstream stream);
EXPORT CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr pointer, size_t size, CUdevice device,
                                        CUstream stream)
{
	return prefetch(pointer, size, device != CU_DEVICE_CPU, emu_per_thread(stream));
}

EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t size, CUmemLocation location,
                                      unsigned int flags, CUstream stream)
{
	(void)flags;
	return prefetch(pointer, size, location.type == CU_MEM_LOCATION_TYPE_DEVICE,
	                emu_legacy(stream));
}

EXPORT CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr pointer, size_t size, CUmemLocation location,
                                           unsigned int flags, CUstream stream)
{
	(void)flags;
	return prefetch(pointer, size, location.type == CU_MEM_LOCATION_TYPE_DEVICE,
	                emu_per_thread(stream));
}
