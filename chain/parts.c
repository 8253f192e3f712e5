/* parts.c: contexts with several parts of the device's multiprocessors. */
#include "parts.h"

#include <string.h>

#define STEP 4 /* multiprocessors; no more than the driver rounds to */

#define TRY(doing, call)                                                                           \
	do {                                                                                       \
		CUresult result_;                                                                  \
                                                                                                   \
		*what = (doing);                                                                   \
		result_ = (call);                                                                  \
		if (result_)                                                                       \
			return result_;                                                            \
	} while (0)

static bool has_green(const struct chain_cuda *cuda)
{
	return cuda->cuDeviceGetDevResource && cuda->cuDevSmResourceSplitByCount &&
	       cuda->cuDevResourceGenerateDesc && cuda->cuGreenCtxCreate &&
	       cuda->cuGreenCtxDestroy && cuda->cuCtxFromGreenCtx && cuda->cuGreenCtxStreamCreate;
}

static CUresult find_home(struct chain_parts *parts, const struct chain_cuda *cuda,
                          const char **what)
{
	CUcontext home;
	int all;

	TRY("asking for the current context", cuda->cuCtxGetCurrent(&home));
	TRY("asking for its device", cuda->cuCtxGetDevice(&parts->device));
	TRY("counting multiprocessors",
	    cuda->cuDeviceGetAttribute(&all, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
	                               parts->device));
	TRY("making a stream", cuda->cuStreamCreate(&parts->stream, CU_STREAM_NON_BLOCKING));
	parts->all = (unsigned int)all;
	parts->home = home;
	return CUDA_SUCCESS;
}

/* The multiprocessors from `first` on, as far as the driver divides them. It rounds both numbers
 * up, so a part at the end has to begin earlier. */
static CUresult find_resource(const struct chain_parts *parts, const struct chain_cuda *cuda,
                              unsigned int first, unsigned int count, CUdevResource *out,
                              const char **what)
{
	CUdevResource all, before, rest;
	unsigned int one;

	TRY("asking for the device's multiprocessors",
	    cuda->cuDeviceGetDevResource(parts->device, &all, CU_DEV_RESOURCE_TYPE_SM));
	for (; first; first = first > STEP ? first - STEP : 0) {
		one = 1;
		memset(&rest, 0, sizeof(rest));
		if (cuda->cuDevSmResourceSplitByCount(&before, &one, &all, &rest, 0, first) ||
		    rest.type != CU_DEV_RESOURCE_TYPE_SM)
			continue;
		one = 1;
		if (!cuda->cuDevSmResourceSplitByCount(out, &one, &rest, NULL, 0, count))
			return CUDA_SUCCESS;
	}
	one = 1;
	TRY("dividing the device's multiprocessors",
	    cuda->cuDevSmResourceSplitByCount(out, &one, &all, NULL, 0, count));
	return CUDA_SUCCESS;
}

static CUresult make_green(const struct chain_parts *parts, const struct chain_cuda *cuda,
                           struct part_context *made, const char **what)
{
	CUdevResourceDesc description;
	CUdevResource resource;
	CUresult result = find_resource(parts, cuda, made->first, made->count, &resource, what);

	if (result)
		return result;
	made->got = resource.sm.smCount;
	TRY("describing a green context",
	    cuda->cuDevResourceGenerateDesc(&description, &resource, 1));
	TRY("making a green context",
	    cuda->cuGreenCtxCreate(&made->green, description, parts->device,
	                           CU_GREEN_CTX_DEFAULT_STREAM));
	*what = "making a stream of a green context";
	result =
	    cuda->cuGreenCtxStreamCreate(&made->stream, made->green, CU_STREAM_NON_BLOCKING, 0);
	if (!result)
		result = cuda->cuCtxFromGreenCtx(&made->context, made->green);
	if (result)
		cuda->cuGreenCtxDestroy(made->green);
	return result;
}

static CUresult make_affinity(const struct chain_parts *parts, const struct chain_cuda *cuda,
                              struct part_context *made, const char **what)
{
	CUexecAffinityParam wanted = {.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT};
	CUcontext none;
	CUresult result;

	wanted.param.smCount.val = made->count;
	made->got = made->count;
	TRY("making a context with a number of multiprocessors",
	    cuda->cuCtxCreate_v3(&made->context, &wanted, 1, 0, parts->device));
	result = cuda->cuStreamCreate(&made->stream, CU_STREAM_NON_BLOCKING);
	if (result)
		cuda->cuCtxDestroy(made->context);
	else
		cuda->cuCtxPopCurrent(&none);
	return result;
}

static void end_one(struct part_context *one, const struct chain_cuda *cuda)
{
	if (!one->count)
		return;
	cuda->cuStreamSynchronize(one->stream);
	cuda->cuStreamDestroy(one->stream);
	if (one->green)
		cuda->cuGreenCtxDestroy(one->green);
	else
		cuda->cuCtxDestroy(one->context);
	memset(one, 0, sizeof(*one));
}

/* The place of the one that has not been chosen for longest. */
static struct part_context *oldest(struct chain_parts *parts)
{
	struct part_context *found = &parts->kept[0];

	for (int i = 1; i < PARTS_KEPT; i++)
		if (parts->kept[i].used < found->used)
			found = &parts->kept[i];
	return found;
}

static CUresult find(struct chain_parts *parts, const struct chain_cuda *cuda, bool green,
                     const struct part_context *wanted, struct part_context **out,
                     const char **what)
{
	struct part_context made = *wanted;
	CUresult result;

	for (int i = 0; i < PARTS_KEPT; i++) {
		*out = &parts->kept[i];
		if ((*out)->count == wanted->count && (*out)->first == wanted->first &&
		    !(*out)->green == !green)
			return CUDA_SUCCESS;
	}
	*out = oldest(parts);
	end_one(*out, cuda);
	result =
	    green ? make_green(parts, cuda, &made, what) : make_affinity(parts, cuda, &made, what);
	if (!result)
		**out = made;
	return result;
}

CUresult parts_choose(struct chain_parts *parts, const struct chain_cuda *cuda,
                      enum gpu_lease_chain_parts how, unsigned int percent, unsigned int begins,
                      struct gpu_lease_part *out, const char **what)
{
	bool green =
	    how == GPU_LEASE_CHAIN_GREEN || (how == GPU_LEASE_CHAIN_AUTO && has_green(cuda));
	struct part_context wanted = {0}, *found;
	CUresult result;

	*what = green ? "green contexts, of a driver from CUDA 12.4 on"
	              : "contexts with an affinity, of a driver from CUDA 11.4 on";
	if (green ? !has_green(cuda) : !cuda->cuCtxCreate_v3)
		return CUDA_ERROR_NOT_FOUND;
	result = parts->home ? CUDA_SUCCESS : find_home(parts, cuda, what);
	if (result)
		return result;
	*out = (struct gpu_lease_part){100, parts->all, parts->home, parts->stream};
	if (percent < 100) {
		wanted.count = (parts->all * percent + 99) / 100;
		wanted.first = green ? parts->all * begins / 1000 : 0;
		result = find(parts, cuda, green, &wanted, &found, what);
		if (result)
			return result;
		found->used = ++parts->changes;
		*out = (struct gpu_lease_part){percent, found->got, found->context, found->stream};
	}
	TRY("changing the current context", cuda->cuCtxSetCurrent(out->context));
	return CUDA_SUCCESS;
}

void parts_end(struct chain_parts *parts, const struct chain_cuda *cuda)
{
	if (!parts->home)
		return;
	cuda->cuCtxSetCurrent(parts->home);
	for (int i = 0; i < PARTS_KEPT; i++)
		end_one(&parts->kept[i], cuda);
	cuda->cuStreamDestroy(parts->stream);
	memset(parts, 0, sizeof(*parts));
}
