/* green.c: the emulated libcuda: green contexts.
 *
 * A green context is one of the server's that takes no memory: what is made in it
 * belongs to the primary context. Its share of the multiprocessors is only counted.
 */
#include "abi/client.h"

#include <stdlib.h>
#include <string.h>

struct resource_mark {
	char text[8];
	int device;
};

static const char mark[8] = "EMUSM1";

struct CUdevResourceDesc_st {
	int device;
	unsigned multiprocessors;
};

static struct green {
	struct green *next;
	struct emu_ctx ctx;
} *greens; /* under emu_lock; kept for ever, as all contexts */

static unsigned least(int device)
{
	return emu_info[device].cc_major >= 9 ? 8 : 4;
}

static unsigned alignment(int device)
{
	return emu_info[device].cc_major >= 9 ? 8 : 2;
}

/* Programs may not look into a resource beyond its counts; where it is from is kept there. */
static void describe(CUdevResource *out, int device, unsigned count)
{
	struct resource_mark where = {.device = device};

	memset(out, 0, sizeof(*out));
	memcpy(where.text, mark, sizeof(mark));
	memcpy(out->_internal_padding, &where, sizeof(where));
	out->type = count ? CU_DEV_RESOURCE_TYPE_SM : CU_DEV_RESOURCE_TYPE_INVALID;
	out->sm.smCount = count;
#if CUDA_VERSION >= 13000
	out->sm.minSmPartitionSize = least(device);
	out->sm.smCoscheduledAlignment = alignment(device);
#endif
}

static CUresult read_resource(const CUdevResource *in, int *device)
{
	struct resource_mark where;

	if (!in || in->type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	memcpy(&where, in->_internal_padding, sizeof(where));
	if (memcmp(where.text, mark, sizeof(mark)))
		return CUDA_ERROR_INVALID_VALUE;
	*device = where.device;
	return CUDA_SUCCESS;
}

static CUresult check(CUdevice device)
{
	TRY(emu_ready());
	return device >= 0 && device < emu_devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *out, CUdevResourceType type)
{
	TRY(check(device));
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	describe(out, device, emu_info[device].multiprocessors);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource *out, CUdevResourceType type)
{
	const struct emu_ctx *ctx = handle ? (struct emu_ctx *)handle : emu_current();

	TRY(emu_ready());
	if (!emu_alive((CUcontext)ctx))
		return CUDA_ERROR_INVALID_CONTEXT;
	TRY(cuDeviceGetDevResource(ctx->device, out, type));
	if (ctx->whole)
		describe(out, ctx->device, ctx->multiprocessors);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *out,
                                         CUdevResourceType type)
{
	return green ? cuCtxGetDevResource((CUcontext)green, out, type)
	             : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *groups,
                                            const CUdevResource *input, CUdevResource *rest,
                                            unsigned int flags, unsigned int count)
{
	bool fine = flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING;
	unsigned all, step, smallest, n;
	int device;

	TRY(emu_ready());
	TRY(read_resource(input, &device));
	if (!groups || flags & ~3U || (result && !*groups))
		return CUDA_ERROR_INVALID_VALUE;
	all = input->sm.smCount;
	if (count > all)
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	step = fine ? 2 : alignment(device);
	smallest = fine ? 2 : least(device);
	count = ((count > smallest ? count : smallest) + step - 1) / step * step;
	n = all / count;
	if (result && n > *groups)
		n = *groups;
	*groups = n;
	for (unsigned i = 0; result && i < n; i++)
		describe(&result[i], device, count);
	if (rest)
		describe(rest, device, all - n * count);
	return n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

EXPORT CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *out, CUdevResource *resources,
                                          unsigned int n)
{
	struct CUdevResourceDesc_st sum = {.device = -1};

	TRY(emu_ready());
	if (!out || !resources || !n)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < n; i++) {
		int device;

		TRY(read_resource(&resources[i], &device));
		if (i && device != sum.device)
			return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
		sum.device = device;
		sum.multiprocessors += resources[i].sm.smCount;
	}
	*out = malloc(sizeof(**out)); /* valid for the lifetime of the process */
	if (!*out)
		return CUDA_ERROR_OUT_OF_MEMORY;
	**out = sum;
	return CUDA_SUCCESS;
}

static CUresult make(CUcontext primary, CUdevResourceDesc desc, struct green **out)
{
	struct green *green = calloc(1, sizeof(*green));
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (green) {
		green->ctx.whole = (struct emu_ctx *)primary;
		green->ctx.multiprocessors = desc->multiprocessors;
		result = emu_open_context(&green->ctx, desc->device);
	}
	if (result) {
		free(green);
		return result;
	}
	pthread_mutex_lock(&emu_lock);
	green->next = greens;
	greens = green;
	pthread_mutex_unlock(&emu_lock);
	*out = green;
	return CUDA_SUCCESS;
}

/* It holds the primary context. */
EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc desc, CUdevice device,
                                 unsigned int flags)
{
	struct green *green;
	CUcontext primary;
	CUresult result;

	TRY(check(device));
	if (!out || !desc || flags > CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->device != device)
		return CUDA_ERROR_INVALID_DEVICE;
	TRY(cuDevicePrimaryCtxRetain(&primary, device));
	result = make(primary, desc, &green);
	if (result)
		(void)cuDevicePrimaryCtxRelease(device);
	else
		*out = (CUgreenCtx)&green->ctx;
	return result;
}

/* The server ends the parts of a context with it. */
void emu_green_drop(const struct emu_ctx *whole)
{
	for (struct green *g = greens; g; g = g->next) {
		if (g->ctx.whole == whole && g->ctx.id) {
			emu_streams_drop(&g->ctx);
			g->ctx.id = 0;
		}
	}
}

static CUresult find(CUgreenCtx handle, struct emu_ctx **out)
{
	TRY(emu_ready());
	*out = NULL;
	pthread_mutex_lock(&emu_lock);
	for (struct green *g = greens; g; g = g->next)
		if (handle == (CUgreenCtx)&g->ctx && g->ctx.id)
			*out = &g->ctx;
	pthread_mutex_unlock(&emu_lock);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx handle)
{
	struct emu_ctx *ctx;
	CUresult result;

	TRY(find(handle, &ctx));
	pthread_mutex_lock(&emu_lock);
	result = emu_close_context(ctx);
	pthread_mutex_unlock(&emu_lock);
	(void)cuDevicePrimaryCtxRelease(ctx->device);
	return result;
}

EXPORT CUresult cuCtxFromGreenCtx(CUcontext *out, CUgreenCtx handle)
{
	struct emu_ctx *ctx;

	TRY(find(handle, &ctx));
	*out = (CUcontext)ctx;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx handle, unsigned int flags,
                                       int priority)
{
	struct emu_ctx *ctx;

	(void)priority;
	TRY(find(handle, &ctx));
	if (!out || flags != CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	return emu_create_stream(ctx, flags, out);
}

EXPORT CUresult cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event)
{
	struct emu_ctx *ctx;

	TRY(find(handle, &ctx));
	if (!event || emu_owner(((struct emu_event *)event)->ctx) != ctx->whole)
		return CUDA_ERROR_INVALID_HANDLE;
	return emu_record_context(ctx, event);
}

EXPORT CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *out)
{
	struct target t;

	TRY(emu_target(emu_legacy(stream), &t));
	*out = t.ctx->whole ? (CUgreenCtx)t.ctx : NULL;
	return CUDA_SUCCESS;
}
