/* array.c: the emulated libcuda: arrays. One is plain device memory in rows, at an address that
 * programs cannot learn. Nothing is copied to or from them. */
#include "abi/client.h"

#include <stdlib.h>

struct emu_array {
	struct emu_array *next;
	struct emu_ctx *ctx;
	uint64_t ctx_id; /* the id of its context, since the struct may be used for another one
	                  * later */
	CUdeviceptr base;
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

static size_t bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	size_t row = (d->Width * format_bytes(d->Format) * d->NumChannels + 31) / 32 * 32;

	return row * (d->Height ? d->Height : 1) * (d->Depth ? d->Depth : 1);
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
	result = emu_allocate(&array->base, bytes(desc), EMU_ARRAY);
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
