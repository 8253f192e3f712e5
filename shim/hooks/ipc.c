/* ipc.c: device memory that processes of one job share (CUDA IPC).
 *
 * Swapped memory is mapped by us, and the driver makes no IPC handles of mapped memory. So its
 * handles are made here. Any other handle is passed to the driver.
 */
#include "base/compiler.h"
#include "base/debug.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "hooks/imports.h"
#include "lease/keeper.h"
#include "lease/meeting.h"
#include "memory/kinds.h"
#include "memory/ranges.h"
#include "memory/shared.h"
#include "tenant/tenant.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* Returns the driver's result. If the driver has refused to make a handle because the memory is
 * managed, tells the user once, since the job can choose swapped memory instead. */
static CUresult explain_refusal(CUresult result, CUdeviceptr base)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	struct memory_range range;

	if (result && memory_find(base, &range) && range.kind == &managed_memory && !range.pool &&
	    !tenant_swaps() && !atomic_flag_test_and_set(&said))
		complain("memory of this job cannot be shared between processes (CUDA IPC), since "
		         "it is managed; start the job with memory:swap in --gpu-share");
	return result;
}

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr pointer)
{
	struct shared_handle handle = {0};
	struct memory_place place;
	__typeof__(&cuIpcGetMemHandle) real = DRIVER(cuIpcGetMemHandle);
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	if (!out || !memory_locate(pointer, &place) || !shared_can(place.base))
		return explain_refusal(real(out, pointer), pointer);
	result = meeting_own_name(handle.name);
	if (!result)
		result = keeper_is() ? shared_lend(place.base, &handle)
		                     : shared_fix(place.base, &handle);
	if (result)
		return result;
	memcpy(out, &handle, sizeof(*out));
	return CUDA_SUCCESS;
}

/* Asks the process that has the memory for it, and maps it. */
static CUresult ask_and_open(CUdeviceptr *out, const struct shared_handle *handle, bool *lent)
{
	const uint64_t what[2] = {handle->block, handle->offset};
	unsigned long turn = shared_turn();
	CUresult result;
	int end;

	result = meeting_ask(handle->name, what, &end);
	if (result)
		return result;
	result = shared_open(handle, end, turn, lent, out);
	close(end);
	return result;
}

/* The same with a lease, as often as that ends meanwhile. */
static CUresult open_lent(CUdeviceptr *out, const struct shared_handle *handle)
{
	CUresult result = CUDA_ERROR_NOT_READY;
	bool lent;

	while (result == CUDA_ERROR_NOT_READY) {
		result = gate_enter_for_memory();
		if (result)
			break;
		gate_leave();
		result = ask_and_open(out, handle, &lent);
	}
	return result;
}

static CUresult open_shared(CUdeviceptr *out, const struct shared_handle *handle,
                            unsigned int flags)
{
	bool lent = false;
	CUdevice device;
	CUresult result;

	result = REAL(cuCtxGetDevice)(&device);
	if (result)
		return result;
	if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	if (meeting_is_own(handle->name))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (shared_open_again(handle, out))
		return CUDA_SUCCESS;
	result = ask_and_open(out, handle, &lent);
	if (lent && !imports_follow()) {
		if (!result)
			shared_close(*out, &result);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return result == CUDA_ERROR_NOT_READY && lent ? open_lent(out, handle) : result;
}

/* The thread is not cancelled meanwhile, since it would leave mappings and descriptors behind. */
static CUresult open_uncancelled(CUdeviceptr *out, const struct shared_handle *handle,
                                 unsigned int flags)
{
	CUresult result;
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	result = open_shared(out, handle, flags);
	pthread_setcancelstate(state, &state);
	return result;
}

#define OPEN(name)                                                                                 \
	EXPORT CUresult name(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)          \
	{                                                                                          \
		__typeof__(&name) real = DRIVER(name);                                             \
		struct shared_handle ours;                                                         \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		memcpy(&ours, &handle, sizeof(ours));                                              \
		if (!out || !shared_is(&ours))                                                     \
			return real(out, handle, flags);                                           \
		return open_uncancelled(out, &ours, flags);                                        \
	}

OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
	__typeof__(&cuIpcCloseMemHandle) real = DRIVER(cuIpcCloseMemHandle);
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	return shared_close(pointer, &result) ? result : real(pointer);
}
