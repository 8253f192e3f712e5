/* context.c: the emulated libcuda: contexts, primary and created, and each thread's stack. */
#include "abi/client.h"

#include <stdlib.h>

#define STACK 64

static struct emu_ctx primaries[EMU_MAX_DEVICES];
static __thread struct emu_ctx *stack[STACK];
static __thread int depth;

/* Handles are never freed: a destroyed context may still be current in a thread, or be used in a
 * call. */
static bool alive(const struct emu_ctx *ctx)
{
	return ctx && ctx->id;
}

bool emu_alive(CUcontext ctx)
{
	return alive((struct emu_ctx *)ctx);
}

struct emu_ctx *emu_current(void)
{
	return depth && alive(stack[depth - 1]) ? stack[depth - 1] : NULL;
}

CUresult emu_need_ctx(struct emu_ctx **ctx)
{
	TRY(emu_ready());
	*ctx = emu_current();
	if (!*ctx)
		return depth && stack[depth - 1] ? CUDA_ERROR_CONTEXT_IS_DESTROYED
		                                 : CUDA_ERROR_INVALID_CONTEXT;
	return (*ctx)->error;
}

CUresult emu_sticky(struct emu_ctx *ctx, CUresult result)
{
	if (result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_FAILED)
		ctx->error = result;
	return result;
}

CUresult emu_open_context(struct emu_ctx *ctx, CUdevice device)
{
	struct emu_request q = {.op = EMU_CTX_CREATE,
	                        .arg = {(uint64_t)device, ctx->primary,
	                                ctx->whole ? ctx->whole->id : 0, ctx->multiprocessors}};
	struct emu_reply r;

	TRY(emu_call(&q, &r, NULL));
	ctx->id = r.r[0];
	ctx->device = device;
	ctx->error = CUDA_SUCCESS;
	emu_groups_open(ctx);
	return CUDA_SUCCESS;
}

CUresult emu_close_context(struct emu_ctx *ctx)
{
	struct emu_request q = {.op = EMU_CTX_DESTROY, .arg = {ctx->id}};

	emu_ends(ctx);
	emu_green_drop(ctx);
	emu_streams_drop(ctx);
	emu_groups_close(ctx);
	ctx->id = 0;
	return emu_call(&q, NULL, NULL);
}

static CUresult check(CUdevice device)
{
	TRY(emu_ready());
	return device >= 0 && device < emu_devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
	CUresult result = CUDA_SUCCESS;

	TRY(check(device));
	pthread_mutex_lock(&emu_lock);
	if (!primaries[device].refs) {
		primaries[device].primary = true;
		result = emu_open_context(&primaries[device], device);
	}
	if (!result)
		primaries[device].refs++;
	pthread_mutex_unlock(&emu_lock);
	*out = (CUcontext)&primaries[device];
	return result;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	CUresult result = CUDA_SUCCESS;

	EMU_POINT();
	TRY(check(device));
	pthread_mutex_lock(&emu_lock);
	if (!primaries[device].refs)
		result = CUDA_ERROR_INVALID_CONTEXT;
	else if (!--primaries[device].refs)
		result = emu_close_context(&primaries[device]);
	pthread_mutex_unlock(&emu_lock);
	return result;
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
	CUresult result = CUDA_SUCCESS;

	TRY(check(device));
	pthread_mutex_lock(&emu_lock);
	if (primaries[device].refs)
		result = emu_close_context(&primaries[device]);
	primaries[device].refs = 0;
	pthread_mutex_unlock(&emu_lock);
	return result;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	TRY(check(device));
	*flags = primaries[device].flags;
	*active = primaries[device].refs > 0;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent(CUcontext ctx)
{
	EMU_POINT();
	TRY(emu_ready());
	if (ctx && !alive((struct emu_ctx *)ctx))
		emu_undefined("a context that was destroyed becomes current");
	if (!alive((struct emu_ctx *)ctx) || depth == STACK)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack[depth++] = (struct emu_ctx *)ctx;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent(CUcontext *ctx)
{
	TRY(emu_ready());
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (ctx)
		*ctx = (CUcontext)stack[depth];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext ctx)
{
	TRY(emu_ready());
	if (depth)
		depth--;
	return ctx ? cuCtxPushCurrent(ctx) : CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	TRY(emu_ready());
	*ctx = depth ? (CUcontext)stack[depth - 1] : NULL;
	return CUDA_SUCCESS;
}

static CUresult create(CUcontext *out, unsigned int multiprocessors, unsigned int flags,
                       CUdevice device)
{
	struct emu_ctx *ctx;
	CUresult result;

	TRY(check(device));
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ctx->multiprocessors = multiprocessors;
	result = emu_open_context(ctx, device);
	if (result) {
		free(ctx);
		return result;
	}
	ctx->flags = flags;
	*out = (CUcontext)ctx;
	return cuCtxPushCurrent(*out);
}

#undef cuCtxCreate
#undef cuCtxCreate_v2
#undef cuCtxCreate_v4
CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device);
EXPORT CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device)
{
	return create(out, 0, flags, device);
}

/* Under MPS alone, as with NVIDIA's driver; rounded up to what the device can divide. */
static CUresult affinity(const CUexecAffinityParam *params, int n, CUdevice device, unsigned *count)
{
	*count = 0;
	TRY(check(device));
	if (n < 0 || (n && !params))
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < n; i++) {
		unsigned wanted = params[i].param.smCount.val;

		if (!emu_mps_server || params[i].type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
			return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
		if (!wanted || wanted > emu_info[device].multiprocessors)
			return CUDA_ERROR_INVALID_VALUE;
		*count = (wanted + 1) / 2 * 2;
	}
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *params, int n, unsigned int flags,
                        CUdevice device);
EXPORT CUresult cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *params, int n,
                               unsigned int flags, CUdevice device)
{
	unsigned count;

	TRY(affinity(params, n, device, &count));
	return create(out, count, flags, device);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned int flags,
                               CUdevice device)
{
	unsigned count = 0;

	if (params && params->cigParams)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (params)
		TRY(affinity(params->execAffinityParams, params->numExecAffinityParams, device,
		             &count));
	return create(out, count, flags, device);
}

EXPORT CUresult cuCtxGetExecAffinity(CUexecAffinityParam *out, CUexecAffinityType type)
{
	struct emu_ctx *ctx;

	TRY(emu_need_ctx(&ctx));
	if (!emu_mps_server || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	out->type = type;
	out->param.smCount.val =
	    ctx->multiprocessors ? ctx->multiprocessors : emu_info[ctx->device].multiprocessors;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetExecAffinitySupport(int *out, CUexecAffinityType type, CUdevice device)
{
	TRY(check(device));
	*out = emu_mps_server && type == CU_EXEC_AFFINITY_TYPE_SM_COUNT;
	return CUDA_SUCCESS;
}

/* For tests: a context of a call that has passed whoever stands before the driver. */
CUresult emugpu_late_context(CUcontext *out, CUdevice device);
EXPORT CUresult emugpu_late_context(CUcontext *out, CUdevice device)
{
	return create(out, 0, 0, device);
}

EXPORT CUresult cuCtxDestroy(CUcontext handle)
{
	struct emu_ctx *ctx = (struct emu_ctx *)handle;
	CUresult result;

	EMU_POINT();
	TRY(emu_ready());
	if (!alive(ctx) || ctx->primary || ctx->whole)
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&emu_lock);
	result = emu_close_context(ctx);
	pthread_mutex_unlock(&emu_lock);
	for (int i = depth; i > 0; i--)
		if (stack[i - 1] == ctx)
			depth = i - 1;
	return result;
}

/* The properties of a context can be asked even after a fault in it. */
static CUresult current_even_failed(struct emu_ctx **ctx)
{
	CUresult result;

	*ctx = NULL;
	result = emu_need_ctx(ctx);
	return *ctx ? CUDA_SUCCESS : result;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
	struct emu_ctx *ctx;

	TRY(current_even_failed(&ctx));
	*device = ctx->device;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
	struct emu_ctx *ctx = (struct emu_ctx *)handle;

	if (!ctx)
		return cuCtxGetDevice(device);
	TRY(emu_ready());
	if (!alive(ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = ctx->device;
	return CUDA_SUCCESS;
}

static CUresult synchronize(struct emu_ctx *ctx)
{
	struct emu_request q = {.op = EMU_CTX_SYNC, .arg = {ctx->id}};

	TRY(emu_capture_forbids_sync(ctx));
	return emu_sticky(ctx, emu_call(&q, NULL, NULL));
}

#undef cuCtxSynchronize
EXPORT CUresult cuCtxSynchronize(void)
{
	struct emu_ctx *ctx;

	EMU_POINT();
	TRY(emu_need_ctx(&ctx));
	return synchronize(ctx);
}

#undef cuCtxSynchronize_v2
CUresult cuCtxSynchronize_v2(CUcontext handle);
EXPORT CUresult cuCtxSynchronize_v2(CUcontext handle)
{
	struct emu_ctx *ctx = (struct emu_ctx *)handle;

	if (!ctx)
		return cuCtxSynchronize();
	TRY(emu_ready());
	return alive(ctx) ? synchronize(ctx) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult emu_record_context(struct emu_ctx *ctx, CUevent handle)
{
	struct emu_event *event = (struct emu_event *)handle;
	struct emu_request q = {.op = EMU_RECORD};

	TRY(emu_capture_forbids_sync(ctx));
	event->capture = 0;
	q.arg[0] = ctx->id;
	q.arg[1] = event->id;
	q.arg[2] = 1;
	return emu_post(&q, NULL);
}

EXPORT CUresult cuCtxRecordEvent(CUcontext handle, CUevent event)
{
	struct emu_ctx *ctx = handle ? (struct emu_ctx *)handle : emu_current();

	EMU_POINT();
	TRY(emu_ready());
	if (!alive(ctx) || !event)
		return CUDA_ERROR_INVALID_VALUE;
	return emu_record_context(ctx, event);
}
