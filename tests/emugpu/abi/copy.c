/* copy.c: the emulated libcuda: copies and memsets, synchronous and not.
 *
 * Copies with pinned memory, or in a capture, touch it when their turn comes. Copies
 * with other memory have touched it when the call returns, as with the real driver.
 */
#include "abi/client.h"

#include <stdlib.h>
#include <string.h>

CUresult emu_check(const struct emu_ctx *ctx, CUdeviceptr pointer, size_t size, unsigned access,
                   enum emu_reach how)
{
	struct emu_request q = {.op = EMU_CHECK, .arg = {pointer, size, access, ctx->id, how}};

	return emu_call(&q, NULL, NULL);
}

static CUresult to_device(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
	bool pinned = emu_is_pinned(from, size);
	struct emu_request q = {.op = EMU_WRITE_FROM,
	                        .arg = {0, to, size, pinned, (uint64_t)(uintptr_t)from}};
	struct target t;

	TRY(emu_target(stream, &t));
	if (!size)
		return CUDA_SUCCESS;
	TRY(emu_check(t.ctx, to, size, EMU_WRITABLE, EMU_BY_COPY));
	if (!pinned && !(t.stream && t.stream->capture)) {
		q.op = EMU_WRITE;
		q.payload = size;
		return emu_submit(stream, &q, from);
	}
	TRY(emu_start_delivery());
	return emu_submit(stream, &q, NULL);
}

static CUresult read_now(const struct target *t, void *to, struct emu_request *q)
{
	q->op = EMU_READ;
	q->arg[0] = t->id;
	return emu_sticky(t->ctx, emu_read(q, to));
}

static CUresult to_host(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
	bool pinned = emu_is_pinned(to, size);
	struct emu_request q = {.op = EMU_READ_TO,
	                        .arg = {0, from, size, pinned, (uint64_t)(uintptr_t)to}};
	struct target t;

	TRY(emu_target(stream, &t));
	if (!size)
		return CUDA_SUCCESS;
	TRY(emu_check(t.ctx, from, size, EMU_READABLE, EMU_BY_COPY));
	if (!pinned && !(t.stream && t.stream->capture))
		return read_now(&t, to, &q);
	TRY(emu_start_delivery());
	return emu_submit(stream, &q, NULL);
}

static CUresult copy_by(enum emu_reach how, CUdeviceptr to, CUdeviceptr from, size_t size,
                        CUstream stream)
{
	struct emu_request q = {.op = EMU_COPY, .arg = {0, to, from, size, how}};
	struct target t;

	TRY(emu_target(stream, &t));
	if (!size)
		return CUDA_SUCCESS;
	TRY(emu_check(t.ctx, to, size, EMU_WRITABLE, how));
	TRY(emu_check(t.ctx, from, size, EMU_READABLE, how));
	return emu_submit(stream, &q, NULL);
}

static CUresult on_device(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	return copy_by(EMU_BY_COPY, to, from, size, stream);
}

/* The addresses tell what is on each side. */
CUresult emu_copy_by(enum emu_reach how, CUdeviceptr to, CUdeviceptr from, size_t size,
                     CUstream stream)
{
	if (emu_is_device(to) && emu_is_device(from))
		return copy_by(how, to, from, size, stream);
	if (emu_is_device(to))
		return to_device(to, (const void *)(uintptr_t)from, size, stream);
	if (emu_is_device(from))
		return to_host((void *)(uintptr_t)to, from, size, stream);
	memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size);
	return CUDA_SUCCESS;
}

CUresult emu_copy(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	return emu_copy_by(EMU_BY_COPY, to, from, size, stream);
}

CUresult emu_set(CUdeviceptr to, uint64_t value, uint64_t width, size_t n, CUstream stream)
{
	struct emu_request q = {.op = EMU_SET, .arg = {0, to, value, width, n}};
	struct target t;

	TRY(emu_target(stream, &t));
	if (to % width)
		return CUDA_ERROR_INVALID_VALUE;
	if (!n)
		return CUDA_SUCCESS;
	if (n > SIZE_MAX / width)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(emu_check(t.ctx, to, n * width, EMU_WRITABLE, EMU_BY_KERNEL));
	return emu_submit(stream, &q, NULL);
}

CUresult emu_wait(CUstream stream)
{
	struct emu_request q = {.op = EMU_STREAM_SYNC};
	struct target t;

	TRY(emu_target(stream, &t));
	TRY(emu_unsafe_call());
	q.arg[0] = t.id;
	return emu_sticky(t.ctx, emu_call(&q, NULL, NULL));
}

/* Each operation in its four forms: on the legacy or the thread's own default
 * stream and waiting for it, and on a stream that the caller names. */
#define FORMS(name, parameters, call)                                                              \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		CUstream stream = CU_STREAM_LEGACY;                                                \
		EMU_POINT();                                                                       \
		TRY(call);                                                                         \
		return emu_wait(stream);                                                           \
	}

#define FORMS_PTDS(name, parameters, call)                                                         \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		CUstream stream = CU_STREAM_PER_THREAD;                                            \
		TRY(call);                                                                         \
		return emu_wait(stream);                                                           \
	}

#define FORMS_ASYNC(name, parameters, which, call)                                                 \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		EMU_POINT();                                                                       \
		stream = which(stream);                                                            \
		return call;                                                                       \
	}

#define H2D CUdeviceptr to, const void *from, size_t size
#define D2H void *to, CUdeviceptr from, size_t size
#define D2D CUdeviceptr to, CUdeviceptr from, size_t size
#define SET8 CUdeviceptr to, unsigned char value, size_t n
#define SET16 CUdeviceptr to, unsigned short value, size_t n
#define SET32 CUdeviceptr to, unsigned int value, size_t n

FORMS(cuMemcpyHtoD_v2, (H2D), to_device(to, from, size, stream))
FORMS(cuMemcpyDtoH_v2, (D2H), to_host(to, from, size, stream))
FORMS(cuMemcpyDtoD_v2, (D2D), on_device(to, from, size, stream))
FORMS(cuMemcpy, (D2D), emu_copy(to, from, size, stream))
FORMS(cuMemsetD8_v2, (SET8), emu_set(to, value, 1, n, stream))
FORMS(cuMemsetD16_v2, (SET16), emu_set(to, value, 2, n, stream))
FORMS(cuMemsetD32_v2, (SET32), emu_set(to, value, 4, n, stream))
FORMS_PTDS(cuMemcpyHtoD_v2_ptds, (H2D), to_device(to, from, size, stream))
FORMS_PTDS(cuMemcpyDtoH_v2_ptds, (D2H), to_host(to, from, size, stream))
FORMS_PTDS(cuMemcpyDtoD_v2_ptds, (D2D), on_device(to, from, size, stream))
FORMS_PTDS(cuMemcpy_ptds, (D2D), emu_copy(to, from, size, stream))
FORMS_PTDS(cuMemsetD8_v2_ptds, (SET8), emu_set(to, value, 1, n, stream))
FORMS_PTDS(cuMemsetD16_v2_ptds, (SET16), emu_set(to, value, 2, n, stream))
FORMS_PTDS(cuMemsetD32_v2_ptds, (SET32), emu_set(to, value, 4, n, stream))
FORMS_ASYNC(cuMemcpyHtoDAsync_v2, (H2D, CUstream stream), emu_legacy,
            to_device(to, from, size, stream))
FORMS_ASYNC(cuMemcpyDtoHAsync_v2, (D2H, CUstream stream), emu_legacy,
            to_host(to, from, size, stream))
FORMS_ASYNC(cuMemcpyDtoDAsync_v2, (D2D, CUstream stream), emu_legacy,
            on_device(to, from, size, stream))
FORMS_ASYNC(cuMemcpyAsync, (D2D, CUstream stream), emu_legacy, emu_copy(to, from, size, stream))
FORMS_ASYNC(cuMemsetD8Async, (SET8, CUstream stream), emu_legacy, emu_set(to, value, 1, n, stream))
FORMS_ASYNC(cuMemsetD16Async, (SET16, CUstream stream), emu_legacy,
            emu_set(to, value, 2, n, stream))
FORMS_ASYNC(cuMemsetD32Async, (SET32, CUstream stream), emu_legacy,
            emu_set(to, value, 4, n, stream))
FORMS_ASYNC(cuMemcpyHtoDAsync_v2_ptsz, (H2D, CUstream stream), emu_per_thread,
            to_device(to, from, size, stream))
FORMS_ASYNC(cuMemcpyDtoHAsync_v2_ptsz, (D2H, CUstream stream), emu_per_thread,
            to_host(to, from, size, stream))
FORMS_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, (D2D, CUstream stream), emu_per_thread,
            on_device(to, from, size, stream))
FORMS_ASYNC(cuMemcpyAsync_ptsz, (D2D, CUstream stream), emu_per_thread,
            emu_copy(to, from, size, stream))
FORMS_ASYNC(cuMemsetD8Async_ptsz, (SET8, CUstream stream), emu_per_thread,
            emu_set(to, value, 1, n, stream))
FORMS_ASYNC(cuMemsetD16Async_ptsz, (SET16, CUstream stream), emu_per_thread,
            emu_set(to, value, 2, n, stream))
FORMS_ASYNC(cuMemsetD32Async_ptsz, (SET32, CUstream stream), emu_per_thread,
            emu_set(to, value, 4, n, stream))
