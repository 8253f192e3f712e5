/* cuda_copy2d.c: the emulated libcuda: copies and sets of rectangles, row by row. No arrays. */
#include "cuda_client.h"

/* Where the first row of one side of a copy starts. */
static CUresult first_row(CUmemorytype type, const void *host, CUdeviceptr device, size_t x,
                          size_t y, size_t pitch, CUdeviceptr *out)
{
	if (type == CU_MEMORYTYPE_HOST)
		*out = (CUdeviceptr)(uintptr_t)host;
	else if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED)
		*out = device;
	else
		return CUDA_ERROR_NOT_SUPPORTED;
	*out += y * pitch + x;
	return CUDA_SUCCESS;
}

static CUresult copy(const CUDA_MEMCPY2D *c, CUstream stream)
{
	CUdeviceptr to, from;

	TRY(emu_ready());
	/* A pitch of 0 stands for rows without a gap. */
	size_t to_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes;
	size_t from_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes;

	if (to_pitch < c->WidthInBytes || from_pitch < c->WidthInBytes)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(first_row(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, to_pitch,
	              &to));
	TRY(first_row(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY,
	              from_pitch, &from));
	for (size_t row = 0; row < c->Height; row++)
		TRY(emu_copy(to + row * to_pitch, from + row * from_pitch, c->WidthInBytes,
		             stream));
	return CUDA_SUCCESS;
}

static CUresult copy_and_wait(const CUDA_MEMCPY2D *c, CUstream stream)
{
	TRY(copy(c, stream));
	return emu_wait(stream);
}

EXPORT CUresult cuMemcpy2D(const CUDA_MEMCPY2D *c)
{
	return copy_and_wait(c, CU_STREAM_LEGACY);
}

EXPORT CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *c)
{
	return copy_and_wait(c, CU_STREAM_PER_THREAD);
}

EXPORT CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *c)
{
	return copy_and_wait(c, CU_STREAM_LEGACY);
}

EXPORT CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *c)
{
	return copy_and_wait(c, CU_STREAM_PER_THREAD);
}

EXPORT CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *c, CUstream stream)
{
	return copy(c, emu_legacy(stream));
}

EXPORT CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *c, CUstream stream)
{
	return copy(c, emu_per_thread(stream));
}

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
