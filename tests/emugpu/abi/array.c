/* array.c: the emulated libcuda: arrays, and copies to and from them. An array is plain device
 * memory in rows, at an address that programs cannot learn. */
#include "abi/client.h"

#include <stdlib.h>

struct emu_array {
	struct emu_array *next;
	struct emu_ctx *ctx;
	uint64_t ctx_id; /* the id of its context, since the struct may be used for another one
	                  * later */
	CUdeviceptr base;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	size_t element, pitch, layer;
	struct emu_extent size;
};

static struct emu_array *arrays; /* under emu_lock */

static bool known(const struct emu_array *array)
{
	bool found = false;

	pthread_mutex_lock(&emu_lock);
	for (const struct emu_array *a = arrays; a; a = a->next)
		found |= a == array;
	pthread_mutex_unlock(&emu_lock);
	return found;
}

static size_t format_bytes(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}

static CUresult check(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	unsigned known_flags =
	    CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_TEXTURE_GATHER;
	size_t limit = 1 << 20;

	if (!d->Width || d->Width > limit || d->Height > limit || d->Depth > limit ||
	    (d->Depth && !d->Height && !(d->Flags & CUDA_ARRAY3D_LAYERED)) ||
	    (d->NumChannels != 1 && d->NumChannels != 2 && d->NumChannels != 4))
		return CUDA_ERROR_INVALID_VALUE;
	return d->Flags & ~known_flags || !format_bytes(d->Format) ? CUDA_ERROR_NOT_SUPPORTED
	                                                           : CUDA_SUCCESS;
}

static void keep(struct emu_array *array)
{
	pthread_mutex_lock(&emu_lock);
	array->next = arrays;
	arrays = array;
	pthread_mutex_unlock(&emu_lock);
}

EXPORT CUresult cuArray3DCreate(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	struct emu_array *array;
	struct emu_ctx *ctx;
	CUresult result;

	TRY(emu_need_ctx(&ctx));
	if (!out || !desc)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(check(desc));
	array = calloc(1, sizeof(*array));
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	array->ctx = ctx;
	array->ctx_id = emu_owner(ctx)->id;
	array->desc = *desc;
	array->element = format_bytes(desc->Format) * desc->NumChannels;
	array->size =
	    (struct emu_extent){desc->Width * array->element, desc->Height ? desc->Height : 1,
	                        desc->Depth ? desc->Depth : 1};
	array->pitch = (array->size.width + 31) / 32 * 32;
	array->layer = array->pitch * array->size.height;
	result = emu_allocate(&array->base, array->layer * array->size.depth, EMU_ARRAY);
	if (result) {
		free(array);
		return result;
	}
	keep(array);
	*out = (CUarray)array;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuArrayCreate(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *desc)
{
	CUDA_ARRAY3D_DESCRIPTOR full = {0};

	EMU_POINT();
	if (!desc)
		return CUDA_ERROR_INVALID_VALUE;
	full.Width = desc->Width;
	full.Height = desc->Height;
	full.Format = desc->Format;
	full.NumChannels = desc->NumChannels;
	return cuArray3DCreate(out, &full);
}

EXPORT CUresult cuArrayDestroy(CUarray handle)
{
	struct emu_array *array = (struct emu_array *)handle;
	struct emu_request q = {.op = EMU_FREE};

	TRY(emu_ready());
	TRY(emu_unsafe_call());
	if (!known(array))
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&emu_lock);
	for (struct emu_array **at = &arrays; *at; at = &(*at)->next) {
		if (*at == array) {
			*at = array->next;
			break;
		}
	}
	pthread_mutex_unlock(&emu_lock);
	q.arg[0] = array->ctx_id;
	q.arg[1] = array->base;
	free(array);
	return emu_call(&q, NULL, NULL) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

EXPORT CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray handle)
{
	TRY(emu_ready());
	if (!out || !known((struct emu_array *)handle))
		return CUDA_ERROR_INVALID_HANDLE;
	*out = ((struct emu_array *)handle)->desc;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR *out, CUarray handle)
{
	CUDA_ARRAY3D_DESCRIPTOR full;

	TRY(cuArray3DGetDescriptor(&full, handle));
	*out = (CUDA_ARRAY_DESCRIPTOR){full.Width, full.Height, full.Format, full.NumChannels};
	return CUDA_SUCCESS;
}

size_t emu_array_element(CUarray handle)
{
	return known((struct emu_array *)handle) ? ((struct emu_array *)handle)->element : 0;
}

CUresult emu_array_side(CUarray handle, size_t x, size_t y, size_t z, struct emu_extent e,
                        struct emu_side *out)
{
	const struct emu_array *a = (struct emu_array *)handle;

	if (!known(a))
		return CUDA_ERROR_INVALID_HANDLE;
	if (x % a->element || x > a->size.width || e.width > a->size.width - x ||
	    y > a->size.height || e.height > a->size.height - y || z > a->size.depth ||
	    e.depth > a->size.depth - z)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (struct emu_side){a->base + z * a->layer + y * a->pitch + x, a->pitch, a->layer};
	return CUDA_SUCCESS;
}

/* A number of bytes from an offset on in the first row, as the oldest functions for arrays
 * address them. */
static CUresult row(CUarray array, size_t offset, size_t size, CUdeviceptr *out)
{
	struct emu_side side;

	TRY(emu_ready());
	TRY(emu_array_side(array, offset, 0, 0, (struct emu_extent){size, 1, 1}, &side));
	*out = side.first;
	return CUDA_SUCCESS;
}

static CUresult into(CUarray to, size_t offset, CUdeviceptr from, size_t size, CUstream stream)
{
	CUdeviceptr at;

	TRY(row(to, offset, size, &at));
	return emu_copy(at, from, size, stream);
}

static CUresult out_of(CUdeviceptr to, CUarray from, size_t offset, size_t size, CUstream stream)
{
	CUdeviceptr at;

	TRY(row(from, offset, size, &at));
	return emu_copy(to, at, size, stream);
}

static CUresult between(CUarray to, size_t to_offset, CUarray from, size_t offset, size_t size,
                        CUstream stream)
{
	CUdeviceptr at;

	TRY(row(from, offset, size, &at));
	return into(to, to_offset, at, size, stream);
}

#define WAITING(name, parameters, call)                                                            \
	EXPORT CUresult name##_v2 parameters                                                       \
	{                                                                                          \
		CUstream stream = CU_STREAM_LEGACY;                                                \
		TRY(call);                                                                         \
		return emu_wait(stream);                                                           \
	}                                                                                          \
	EXPORT CUresult name##_v2_ptds parameters                                                  \
	{                                                                                          \
		CUstream stream = CU_STREAM_PER_THREAD;                                            \
		TRY(call);                                                                         \
		return emu_wait(stream);                                                           \
	}

#define HOST(pointer) ((CUdeviceptr)(uintptr_t)(pointer))
#undef cuMemcpyDtoA
#undef cuMemcpyAtoD
#undef cuMemcpyHtoA
#undef cuMemcpyAtoH
#undef cuMemcpyAtoA

WAITING(cuMemcpyDtoA, (CUarray to, size_t offset, CUdeviceptr from, size_t n),
        into(to, offset, from, n, stream))
WAITING(cuMemcpyHtoA, (CUarray to, size_t offset, const void *from, size_t n),
        into(to, offset, HOST(from), n, stream))
WAITING(cuMemcpyAtoD, (CUdeviceptr to, CUarray from, size_t offset, size_t n),
        out_of(to, from, offset, n, stream))
WAITING(cuMemcpyAtoH, (void *to, CUarray from, size_t offset, size_t n),
        out_of(HOST(to), from, offset, n, stream))
WAITING(cuMemcpyAtoA, (CUarray to, size_t to_offset, CUarray from, size_t offset, size_t n),
        between(to, to_offset, from, offset, n, stream))

EXPORT CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void *from, size_t n,
                                     CUstream stream)
{
	return into(to, offset, HOST(from), n, emu_legacy(stream));
}

EXPORT CUresult cuMemcpyHtoAAsync_v2_ptsz(CUarray to, size_t offset, const void *from, size_t n,
                                          CUstream stream)
{
	return into(to, offset, HOST(from), n, emu_per_thread(stream));
}

EXPORT CUresult cuMemcpyAtoHAsync_v2(void *to, CUarray from, size_t offset, size_t n,
                                     CUstream stream)
{
	return out_of(HOST(to), from, offset, n, emu_legacy(stream));
}

EXPORT CUresult cuMemcpyAtoHAsync_v2_ptsz(void *to, CUarray from, size_t offset, size_t n,
                                          CUstream stream)
{
	return out_of(HOST(to), from, offset, n, emu_per_thread(stream));
}
