/* contexts.c: the functions that create and destroy contexts. */
#include "work/contexts.h"
#include "base/compiler.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/shortage.h"
#include "memory/swap/segments.h"

#define CONTEXT_PART 32 /* a context takes at most this part (1/32) of its device's memory */

/* By device: its primary context, and how often the program has retained it. Under primary_lock. */
static struct {
	CUcontext context;
	unsigned int retained;
} primaries[MAX_DEVICES];
static struct lock primary_lock = LOCK(LOCK_PRIMARY);

/* How much device memory a context may need, which is not known before: half a GiB on a large
 * device. */
static uint64_t context_bytes(CUdevice device)
{
	size_t total = 0;

	return REAL(cuDeviceTotalMem_v2)(&total, device) ? 0 : total / CONTEXT_PART;
}

static bool wait_for_context(struct shortage *shortage, CUresult result, CUdevice device)
{
	bool full = result == CUDA_ERROR_OUT_OF_MEMORY;

	return shortage_wait(shortage, result, device, full ? context_bytes(device) : 0);
}

static CUresult retain(CUcontext *context, CUdevice device)
{
	__typeof__(&cuDevicePrimaryCtxRetain) real = DRIVER(cuDevicePrimaryCtxRetain);
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = gate_enter_unless_stopped();
	if (result)
		return result;
	lock_take(&primary_lock);
	result = real(context, device);
	if (!result && device < MAX_DEVICES) {
		primaries[device].context = *context;
		primaries[device].retained++;
	}
	lock_give(&primary_lock);
	gate_leave();
	return result;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	struct shortage shortage = {0};
	CUresult result;

	do
		result = retain(context, device);
	while (wait_for_context(&shortage, result, device));
	if (result)
		return result;
	context_add(*context, device);
	return CUDA_SUCCESS;
}

/* The program releases the primary context for the last time, or resets it: it is destroyed, until
 * it is retained again. Caller holds primary_lock. */
static CUresult end_primary(CUresult (*real)(CUdevice), CUdevice device)
{
	CUcontext context = primaries[device].context;
	struct context_entry entry = context_remove_begin(context);
	CUresult result = real(device);
	unsigned int flags;
	int active = 1;

	REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active);
	context_remove_end(context, &entry, !active);
	if (!active)
		primaries[device].retained = 0;
	return result;
}

static CUresult release_primary(CUresult (*real)(CUdevice), CUdevice device, bool reset)
{
	CUresult result;

	if (device < 0 || device >= MAX_DEVICES || !primaries[device].retained)
		return real(device);
	if (reset || primaries[device].retained == 1)
		return end_primary(real, device);
	result = real(device);
	if (!result)
		primaries[device].retained--;
	return result;
}

#define END_PRIMARY(name, reset)                                                                   \
	EXPORT CUresult name(CUdevice device)                                                      \
	{                                                                                          \
		__typeof__(&name) real = DRIVER(name);                                             \
		CUresult result;                                                                   \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		result = gate_enter_unless_stopped();                                              \
		if (result)                                                                        \
			return result;                                                             \
		lock_take(&primary_lock);                                                          \
		result = release_primary(real, device, reset);                                     \
		lock_give(&primary_lock);                                                          \
		gate_leave();                                                                      \
		return result;                                                                     \
	}

END_PRIMARY(cuDevicePrimaryCtxRelease, false)
END_PRIMARY(cuDevicePrimaryCtxRelease_v2, false)
END_PRIMARY(cuDevicePrimaryCtxReset, true)
END_PRIMARY(cuDevicePrimaryCtxReset_v2, true)

#define CREATE(name, parameters, arguments)                                                        \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		__typeof__(&name) real = DRIVER(name);                                             \
		struct shortage shortage = {0};                                                    \
		CUresult result;                                                                   \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		do {                                                                               \
			result = gate_enter_unless_stopped();                                      \
			if (result)                                                                \
				break;                                                             \
			result = real arguments;                                                   \
			gate_leave();                                                              \
		} while (wait_for_context(&shortage, result, device));                             \
		if (!result)                                                                       \
			context_add(*context, device);                                             \
		return result;                                                                     \
	}

CREATE(cuCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device),
       (context, flags, device))
CREATE(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device),
       (context, flags, device))
CREATE(cuCtxCreate_v3,
       (CUcontext * context, CUexecAffinityParam *params, int n, unsigned int flags,
        CUdevice device),
       (context, params, n, flags, device))
CREATE(cuCtxCreate_v4,
       (CUcontext * context, CUctxCreateParams *params, unsigned int flags, CUdevice device),
       (context, params, flags, device))

static CUresult end_context(CUresult (*real)(CUcontext), CUcontext context)
{
	CUresult result = gate_enter_unless_stopped();
	struct context_entry entry;

	if (result)
		return result;
	entry = context_remove_begin(context);
	result = real(context);
	context_remove_end(context, &entry, !result);
	gate_leave();
	return result;
}

#define DESTROY(name)                                                                              \
	EXPORT CUresult name(CUcontext context)                                                    \
	{                                                                                          \
		__typeof__(&name) real = DRIVER(name);                                             \
		if (!real)                                                                         \
			return CUDA_ERROR_NOT_FOUND;                                               \
		return end_context(real, context);                                                 \
	}

DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)

static CUdevice device_of_context(CUcontext context)
{
	CUdevice device = -1;
	CUcontext old;

	if (!REAL(cuCtxPushCurrent_v2)(context)) {
		REAL(cuCtxGetDevice)(&device);
		REAL(cuCtxPopCurrent_v2)(&old);
	}
	return device;
}

/* Memory that we map has to be made accessible to each device. cuCtxDisablePeerAccess does not
 * concern mappings, so that function is not replaced. */
EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	__typeof__(&cuCtxEnablePeerAccess) real = DRIVER(cuCtxEnablePeerAccess);
	CUresult result;
	CUdevice device;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = real(peer, flags);
	if (result)
		return result;
	if (!REAL(cuCtxGetDevice)(&device))
		swap_peer(device_of_context(peer), device);
	return CUDA_SUCCESS;
}

/* How often the program has attached a context and not detached it since. Beyond that cuCtxDetach
 * destroys the context. */
static atomic_int attached;

EXPORT CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
	__typeof__(&cuCtxAttach) real = DRIVER(cuCtxAttach);
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = real(context, flags);
	if (result)
		return result;
	atomic_fetch_add(&attached, 1);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDetach(CUcontext context)
{
	__typeof__(&cuCtxDetach) real = DRIVER(cuCtxDetach);

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	if (atomic_load(&attached) > 0) {
		atomic_fetch_sub(&attached, 1);
		return real(context);
	}
	return end_context(real, context);
}

/* An event of the primary context does not cover work on its green contexts, so these are entered
 * as contexts of their own. */
EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc description, CUdevice device,
                                 unsigned int flags)
{
	__typeof__(&cuGreenCtxCreate) real = DRIVER(cuGreenCtxCreate);
	CUresult result;
	CUcontext context;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = gate_enter_unless_stopped();
	if (result)
		return result;
	result = real(green, description, device, flags);
	gate_leave();
	if (result)
		return result;
	if (!REAL(cuCtxFromGreenCtx)(&context, *green))
		context_add(context, device);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
	__typeof__(&cuGreenCtxDestroy) real = DRIVER(cuGreenCtxDestroy);
	CUcontext context = NULL;
	struct context_entry entry;
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = gate_enter_unless_stopped();
	if (result)
		return result;
	REAL(cuCtxFromGreenCtx)(&context, green);
	entry = context_remove_begin(context);
	result = real(green);
	context_remove_end(context, &entry, !result);
	gate_leave();
	return result;
}

static void in_child(void)
{
	lock_after_fork(&primary_lock);
	for (int d = 0; d < MAX_DEVICES; d++)
		primaries[d].retained = 0;
}
FORK_WATCH(in_child);
