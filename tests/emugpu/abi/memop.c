/* memop.c: the emulated libcuda: words of device memory that a stream writes or waits for. */
#include "abi/client.h"

#define WIDTH sizeof(cuuint32_t)

static CUresult one(enum emu_op op, CUstream stream, CUdeviceptr address, cuuint32_t value,
                    unsigned flags)
{
	struct emu_request q = {.op = op, .arg = {0, address, value, WIDTH, flags}};
	struct emu_request range = {.op = EMU_RANGE, .arg = {address}};
	struct emu_reply r;
	struct target t;

	TRY(emu_target(stream, &t));
	if (address % WIDTH)
		return CUDA_ERROR_INVALID_VALUE;
	/* Flushing remote writes has no meaning here. */
	if (op == EMU_WAIT_VALUE && flags & CU_STREAM_WAIT_VALUE_FLUSH)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (flags > (op == EMU_WAIT_VALUE ? (unsigned)CU_STREAM_WAIT_VALUE_NOR
	                                  : (unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER))
		return CUDA_ERROR_INVALID_VALUE;
	if (emu_is_pinned((void *)(uintptr_t)address, WIDTH))
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(emu_call(&range, &r, NULL));
	if (r.r[2] == EMU_MANAGED)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(emu_check(t.ctx, address, WIDTH, op == EMU_WAIT_VALUE ? EMU_READABLE : EMU_WRITABLE,
	              EMU_BY_KERNEL));
	return emu_submit(stream, &q, NULL);
}

#define FORMS(name, op)                                                                            \
	EXPORT CUresult name##_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,          \
	                          unsigned int flags)                                              \
	{                                                                                          \
		return one(op, emu_legacy(stream), address, value, flags);                         \
	}                                                                                          \
	EXPORT CUresult name##_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,     \
	                               unsigned int flags)                                         \
	{                                                                                          \
		return one(op, emu_per_thread(stream), address, value, flags);                     \
	}

#undef cuStreamWaitValue32
#undef cuStreamWriteValue32
FORMS(cuStreamWaitValue32, EMU_WAIT_VALUE)
FORMS(cuStreamWriteValue32, EMU_WRITE_VALUE)
