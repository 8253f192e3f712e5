/* memop.c: the emulated libcuda: words of device memory that a stream writes or waits for. */
#include "abi/client.h"

#define BATCH_LIMIT 256

/* An operation on one word, checked but not yet submitted. */
static CUresult prepare(CUstream stream, enum emu_op op, CUdeviceptr address, uint64_t value,
                        uint64_t width, unsigned flags, struct emu_request *out)
{
	struct emu_request range = {.op = EMU_RANGE, .arg = {address}};
	struct emu_reply r;
	struct target t;

	TRY(emu_target(stream, &t));
	*out = (struct emu_request){.op = op, .arg = {0, address, value, width, flags}};
	if (address % width)
		return CUDA_ERROR_INVALID_VALUE;
	/* Flushing remote writes has no meaning here. */
	if (op == EMU_WAIT_VALUE && flags & CU_STREAM_WAIT_VALUE_FLUSH)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (flags > (op == EMU_WAIT_VALUE ? (unsigned)CU_STREAM_WAIT_VALUE_NOR
	                                  : (unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER))
		return CUDA_ERROR_INVALID_VALUE;
	if (emu_is_pinned((void *)(uintptr_t)address, width))
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(emu_call(&range, &r, NULL));
	if (r.r[2] == EMU_MANAGED)
		return CUDA_ERROR_INVALID_VALUE;
	return emu_check(t.ctx, address, width, op == EMU_WAIT_VALUE ? EMU_READABLE : EMU_WRITABLE,
	                 EMU_BY_KERNEL);
}

static CUresult one(enum emu_op op, CUstream stream, CUdeviceptr address, uint64_t value,
                    uint64_t width, unsigned flags)
{
	struct emu_request q;

	TRY(prepare(stream, op, address, value, width, flags, &q));
	return emu_submit(stream, &q, NULL);
}

/* q->op is 0 if there is nothing to submit. */
static CUresult prepare_param(CUstream stream, const CUstreamBatchMemOpParams *p,
                              struct emu_request *q)
{
	*q = (struct emu_request){0};
	switch (p->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		return prepare(stream, EMU_WAIT_VALUE, p->waitValue.address, p->waitValue.value, 4,
		               p->waitValue.flags, q);
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return prepare(stream, EMU_WAIT_VALUE, p->waitValue.address, p->waitValue.value64,
		               8, p->waitValue.flags, q);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		return prepare(stream, EMU_WRITE_VALUE, p->writeValue.address, p->writeValue.value,
		               4, p->writeValue.flags, q);
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return prepare(stream, EMU_WRITE_VALUE, p->writeValue.address,
		               p->writeValue.value64, 8, p->writeValue.flags, q);
	case CU_STREAM_MEM_OP_BARRIER:
		return CUDA_SUCCESS; /* there is nothing to do */
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
#if CUDA_VERSION >= 13010
	case CU_STREAM_MEM_OP_ATOMIC_REDUCTION:
#endif
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* All or nothing. */
static CUresult batch(CUstream stream, unsigned n, const CUstreamBatchMemOpParams *params,
                      unsigned flags)
{
	struct emu_request q[BATCH_LIMIT];

	TRY(emu_ready());
	if (flags || !params || n > BATCH_LIMIT)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < n; i++)
		TRY(prepare_param(stream, &params[i], &q[i]));
	for (unsigned i = 0; i < n; i++)
		if (q[i].op)
			TRY(emu_submit(stream, &q[i], NULL));
	return CUDA_SUCCESS;
}

#define FORMS(name, op, type, width)                                                               \
	EXPORT CUresult name##_v2(CUstream stream, CUdeviceptr address, type value,                \
	                          unsigned int flags)                                              \
	{                                                                                          \
		return one(op, emu_legacy(stream), address, value, width, flags);                  \
	}                                                                                          \
	EXPORT CUresult name##_v2_ptsz(CUstream stream, CUdeviceptr address, type value,           \
	                               unsigned int flags)                                         \
	{                                                                                          \
		return one(op, emu_per_thread(stream), address, value, width, flags);              \
	}

#undef cuStreamWaitValue32
#undef cuStreamWaitValue64
#undef cuStreamWriteValue32
#undef cuStreamWriteValue64
FORMS(cuStreamWaitValue32, EMU_WAIT_VALUE, cuuint32_t, 4)
FORMS(cuStreamWaitValue64, EMU_WAIT_VALUE, cuuint64_t, 8)
FORMS(cuStreamWriteValue32, EMU_WRITE_VALUE, cuuint32_t, 4)
FORMS(cuStreamWriteValue64, EMU_WRITE_VALUE, cuuint64_t, 8)

EXPORT CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int n,
                                      CUstreamBatchMemOpParams *params, unsigned int flags)
{
	return batch(emu_legacy(stream), n, params, flags);
}

EXPORT CUresult cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned int n,
                                           CUstreamBatchMemOpParams *params, unsigned int flags)
{
	return batch(emu_per_thread(stream), n, params, flags);
}
