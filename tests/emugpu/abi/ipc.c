/* ipc.c: the emulated libcuda: plain memory shared between processes.
 *
 * A handle is the server's number of the memory, behind a mark.
 */
#include "abi/client.h"

#include <string.h>

static const char mark[8] = "EMUIPC1";

/* Managed, pooled and physical memory cannot be shared in this way, nor memory of another
 * process. */
EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
	struct emu_request q = {.op = EMU_IPC_EXPORT, .arg = {pointer}};
	struct emu_reply r;

	TRY(emu_ready());
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(emu_call(&q, &r, NULL));
	memset(handle, 0, sizeof(*handle));
	memcpy(handle->reserved, mark, sizeof(mark));
	memcpy(handle->reserved + sizeof(mark), &r.r[0], sizeof(r.r[0]));
	return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
	struct emu_request q = {.op = EMU_IPC_OPEN};
	struct emu_reply r;
	struct emu_ctx *ctx;

	TRY(emu_need_ctx(&ctx));
	if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
	    memcmp(handle.reserved, mark, sizeof(mark)))
		return CUDA_ERROR_INVALID_VALUE;
	q.arg[0] = emu_owner(ctx)->id;
	memcpy(&q.arg[1], handle.reserved + sizeof(mark), sizeof(q.arg[1]));
	TRY(emu_sticky(ctx, emu_call(&q, &r, NULL)));
	if (r.r[1])
		return CUDA_ERROR_INVALID_CONTEXT; /* nobody opens what is its own */
	*out = r.r[0];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
	struct emu_request q = {.op = EMU_IPC_CLOSE, .arg = {pointer}};

	TRY(emu_ready());
	TRY(emu_unsafe_call());
	return emu_call(&q, NULL, NULL);
}
