/* copy3d.c: the emulated libcuda: copies and sets of rectangles and boxes, row by row. */
#include "abi/client.h"

/* Rows and layers that follow one another without a gap are one. */
static struct emu_extent merge(const struct emu_side *to, const struct emu_side *from,
                               struct emu_extent e)
{
	if (e.height > 1 && (to->pitch != e.width || from->pitch != e.width))
		return e;
	if (e.depth > 1 && (to->layer != e.width * e.height || from->layer != e.width * e.height))
		return (struct emu_extent){e.width * e.height, 1, e.depth};
	return (struct emu_extent){e.width * e.height * e.depth, 1, 1};
}

CUresult emu_copy_box(const struct emu_side *to, const struct emu_side *from,
                      struct emu_extent extent, enum emu_reach how, CUstream stream)
{
	struct emu_extent e = merge(to, from, extent);

	for (size_t z = 0; z < e.depth; z++)
		for (size_t y = 0; y < e.height; y++)
			TRY(emu_copy_by(how, to->first + z * to->layer + y * to->pitch,
			                from->first + z * from->layer + y * from->pitch, e.width,
			                stream));
	return CUDA_SUCCESS;
}

/* A side as the structs of copies describe it; a pitch or height of 0 stands for no gap. */
struct description {
	CUmemorytype type;
	const void *host;
	CUdeviceptr device;
	CUarray array;
	size_t x, y, z, pitch, height;
};

static CUresult side_of(const struct description *d, struct emu_extent e, struct emu_side *out)
{
	if (d->type == CU_MEMORYTYPE_ARRAY)
		return emu_array_side(d->array, d->x, d->y, d->z, e, out);
	out->pitch = d->pitch ? d->pitch : d->x + e.width;
	out->layer = out->pitch * (d->height ? d->height : d->y + e.height);
	if (out->pitch < d->x + e.width || (d->height && d->height < d->y + e.height))
		return CUDA_ERROR_INVALID_VALUE;
	if (d->type == CU_MEMORYTYPE_HOST)
		out->first = (uint64_t)(uintptr_t)d->host;
	else if (d->type == CU_MEMORYTYPE_DEVICE || d->type == CU_MEMORYTYPE_UNIFIED)
		out->first = d->device;
	else
		return CUDA_ERROR_INVALID_VALUE;
	out->first += d->z * out->layer + d->y * out->pitch + d->x;
	return CUDA_SUCCESS;
}

static CUresult copy(const struct description *to, const struct description *from,
                     struct emu_extent extent, enum emu_reach how, CUstream stream)
{
	struct emu_side to_side, from_side;

	TRY(emu_ready());
	if (!extent.width || !extent.height || !extent.depth)
		return CUDA_SUCCESS;
	TRY(side_of(to, extent, &to_side));
	TRY(side_of(from, extent, &from_side));
	return emu_copy_box(&to_side, &from_side, extent, how, stream);
}

#define SIDE(c, which, z, height)                                                                  \
	{(c)->which##MemoryType,                                                                   \
	 (c)->which##Host,                                                                         \
	 (c)->which##Device,                                                                       \
	 (c)->which##Array,                                                                        \
	 (c)->which##XInBytes,                                                                     \
	 (c)->which##Y,                                                                            \
	 (z),                                                                                      \
	 (c)->which##Pitch,                                                                        \
	 (height)}

static CUresult copy2d(const CUDA_MEMCPY2D *c, CUstream stream)
{
	struct description to = SIDE(c, dst, 0, 0), from = SIDE(c, src, 0, 0);

	return copy(&to, &from, (struct emu_extent){c->WidthInBytes, c->Height, 1}, EMU_BY_COPY,
	            stream);
}

CUresult emu_copy3d(const CUDA_MEMCPY3D *c, enum emu_reach how, CUstream stream)
{
	struct description to = SIDE(c, dst, c->dstZ, c->dstHeight),
	                   from = SIDE(c, src, c->srcZ, c->srcHeight);

	if (c->srcLOD || c->dstLOD)
		return CUDA_ERROR_INVALID_VALUE; /* there are no mipmapped arrays */
	return copy(&to, &from, (struct emu_extent){c->WidthInBytes, c->Height, c->Depth}, how,
	            stream);
}

static CUresult copy3d(const CUDA_MEMCPY3D *c, CUstream stream)
{
	return emu_copy3d(c, EMU_BY_COPY, stream);
}

/* A copy that waits, in its form of the legacy default stream and in the thread's own. */
#define WAITING(name, per_thread, type, call)                                                      \
	EXPORT CUresult name(const type *c)                                                        \
	{                                                                                          \
		TRY(call(c, CU_STREAM_LEGACY));                                                    \
		return emu_wait(CU_STREAM_LEGACY);                                                 \
	}                                                                                          \
	EXPORT CUresult per_thread(const type *c)                                                  \
	{                                                                                          \
		TRY(call(c, CU_STREAM_PER_THREAD));                                                \
		return emu_wait(CU_STREAM_PER_THREAD);                                             \
	}

#define ASYNC(name, per_thread, type, call)                                                        \
	EXPORT CUresult name(const type *c, CUstream stream)                                       \
	{                                                                                          \
		return call(c, emu_legacy(stream));                                                \
	}                                                                                          \
	EXPORT CUresult per_thread(const type *c, CUstream stream)                                 \
	{                                                                                          \
		return call(c, emu_per_thread(stream));                                            \
	}

WAITING(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, copy2d)
WAITING(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, copy2d)
WAITING(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, copy3d)
ASYNC(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, copy2d)
ASYNC(cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, copy3d)

static CUresult set(CUdeviceptr to, size_t pitch, uint64_t value, size_t bytes, size_t width,
                    size_t height, CUstream stream)
{
	if (height > 1 && pitch / bytes < width)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t row = 0; row < height; row++)
		TRY(emu_set(to + row * pitch, value, bytes, width, stream));
	return CUDA_SUCCESS;
}

/* The four forms of a set of 1, 2 or 4 bytes an element. */
#define SETS(bits, type)                                                                           \
	EXPORT CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value,           \
	                                       size_t width, size_t height)                        \
	{                                                                                          \
		TRY(set(to, pitch, value, bits / 8, width, height, CU_STREAM_LEGACY));             \
		return emu_wait(CU_STREAM_LEGACY);                                                 \
	}                                                                                          \
	EXPORT CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type value,      \
	                                            size_t width, size_t height)                   \
	{                                                                                          \
		TRY(set(to, pitch, value, bits / 8, width, height, CU_STREAM_PER_THREAD));         \
		return emu_wait(CU_STREAM_PER_THREAD);                                             \
	}                                                                                          \
	EXPORT CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value,         \
	                                         size_t width, size_t height, CUstream stream)     \
	{                                                                                          \
		return set(to, pitch, value, bits / 8, width, height, emu_legacy(stream));         \
	}                                                                                          \
	EXPORT CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr to, size_t pitch, type value,    \
	                                              size_t width, size_t height,                 \
	                                              CUstream stream)                             \
	{                                                                                          \
		return set(to, pitch, value, bits / 8, width, height, emu_per_thread(stream));     \
	}

SETS(8, unsigned char)
SETS(16, unsigned short)
SETS(32, unsigned int)
