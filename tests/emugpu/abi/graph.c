/* graph.c: the emulated libcuda: graphs, their launches and the memory they allocate. */
#include "abi/client.h"

#include <stdlib.h>
#include <string.h>

static struct emu_node *node_that_allocates(const struct emu_graph *graph, uint64_t pointer)
{
	for (struct emu_node *n = graph->first; n; n = n->next)
		if (n->memory && n->memory->pointer == pointer)
			return n;
	return NULL;
}

CUresult emu_graph_add(struct emu_graph *graph, const struct emu_request *request,
                       struct emu_graph_memory *memory)
{
	struct emu_node *node = calloc(1, sizeof(*node)), *allocates = NULL;

	if (!node)
		return CUDA_ERROR_OUT_OF_MEMORY;
	node->request = *request;
	node->memory = memory;
	pthread_mutex_lock(&emu_lock);
	if (request->op == EMU_FREE_ORDERED)
		allocates = node_that_allocates(graph, request->arg[1]);
	if (allocates)
		allocates->freed = true;
	if (memory)
		memory->graphs++;
	if (graph->last)
		graph->last->next = node;
	else
		graph->first = node;
	graph->last = node;
	graph->nodes++;
	pthread_mutex_unlock(&emu_lock);
	return CUDA_SUCCESS;
}

static void release(struct emu_graph_memory *memory, bool locked)
{
	struct emu_request q = {.op = EMU_GRAPH_DROP, .arg = {memory->pointer}};
	bool last;

	if (!locked)
		pthread_mutex_lock(&emu_lock);
	last = !--memory->graphs;
	if (!locked)
		pthread_mutex_unlock(&emu_lock);
	if (last) {
		(void)emu_call(&q, NULL, NULL);
		free(memory);
	}
}

void emu_graph_free(struct emu_graph *graph, bool locked)
{
	while (graph->first) {
		struct emu_node *node = graph->first;

		graph->first = node->next;
		if (node->memory)
			release(node->memory, locked);
		free(node);
	}
	free(graph);
}

/* An allocation in a capture: an address now, memory with each launch. */
CUresult emu_graph_allocate(CUdeviceptr *out, size_t size, const struct target *t)
{
	struct emu_request reserve = {.op = EMU_GRAPH_RESERVE,
	                              .arg = {(uint64_t)t->ctx->device, size}};
	struct emu_request q = {.op = EMU_GRAPH_ALLOC};
	struct emu_graph_memory *memory;
	struct emu_reply r;

	if (t->stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	memory = calloc(1, sizeof(*memory));
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (emu_call(&reserve, &r, NULL)) {
		free(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memory->pointer = q.arg[1] = *out = r.r[0];
	return emu_graph_add(t->stream->capture->graph, &q, memory);
}

#define INSTANTIATE_FLAGS                                                                          \
	(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |    \
	 CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

#undef cuGraphInstantiate
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph handle,
                                            unsigned long long flags)
{
	struct emu_graph *graph = (struct emu_graph *)handle, *copy;
	CUresult result = CUDA_SUCCESS;

	TRY(emu_ready());
	if (!graph || flags & ~(unsigned long long)INSTANTIATE_FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	copy = calloc(1, sizeof(*copy));
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	copy->ctx = graph->ctx;
	copy->auto_free = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
	for (struct emu_node *n = graph->first; n && !result; n = n->next)
		result = emu_graph_add(copy, &n->request, n->memory);
	if (result)
		emu_graph_free(copy, false);
	else
		*exec = (CUgraphExec)copy;
	return result;
}

static void cancel(const struct emu_graph *graph, const struct emu_node *until)
{
	for (struct emu_node *n = graph->first; n != until; n = n->next) {
		struct emu_request q = {.op = EMU_GRAPH_CANCEL};

		if (!n->memory)
			continue;
		q.arg[0] = n->memory->pointer;
		(void)emu_call(&q, NULL, NULL);
	}
}

/* Memory for all that a launch will allocate, or an error and nothing. */
static CUresult back(const struct emu_graph *graph, bool upload)
{
	for (struct emu_node *n = graph->first; n; n = n->next) {
		struct emu_request q = {.op = EMU_GRAPH_BACK};
		CUresult result;

		if (!n->memory)
			continue;
		q.arg[0] = n->memory->pointer;
		q.arg[1] = upload                         ? EMU_FOR_UPLOAD
		           : n->freed || graph->auto_free ? EMU_FOR_LAUNCH
		                                          : EMU_FOR_UNFREED;
		result = emu_call(&q, NULL, NULL);
		if (result) {
			if (!upload)
				cancel(graph, n);
			return result;
		}
	}
	return CUDA_SUCCESS;
}

static bool allocates(const struct emu_graph *graph)
{
	for (struct emu_node *n = graph->first; n; n = n->next)
		if (n->memory)
			return true;
	return false;
}

static CUresult launch(CUgraphExec exec, CUstream stream)
{
	struct emu_graph *graph = (struct emu_graph *)exec;
	struct target t;

	TRY(emu_target(stream, &t));
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	if (t.stream && t.stream->capture && allocates(graph))
		return CUDA_ERROR_NOT_SUPPORTED; /* no part of another graph allocates */
	TRY(back(graph, false));
	for (struct emu_node *n = graph->first; n; n = n->next) {
		struct emu_request request = n->request;
		struct emu_request first = {.op = EMU_FREE_ORDERED, .arg = {0, request.arg[1]}};

		if (n->memory && graph->auto_free && !n->freed)
			TRY(emu_submit(stream, &first, NULL));
		TRY(emu_submit(stream, &request, NULL));
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	return launch(exec, emu_legacy(stream));
}

EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	return launch(exec, emu_per_thread(stream));
}

EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	(void)stream;
	TRY(emu_ready());
	return exec ? back((struct emu_graph *)exec, true) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
	return cuGraphUpload(exec, stream);
}

EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
	TRY(emu_ready());
	emu_graph_free((struct emu_graph *)graph, false);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	TRY(emu_ready());
	emu_graph_free((struct emu_graph *)exec, false);
	return CUDA_SUCCESS;
}

static CUresult ask(enum emu_op op, CUdevice device, uint64_t value, struct emu_reply *r)
{
	struct emu_request q = {.op = op, .arg = {(uint64_t)device, value}};

	TRY(emu_ready());
	if (device < 0 || device >= emu_devices)
		return CUDA_ERROR_INVALID_DEVICE;
	return emu_call(&q, r, NULL);
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	return ask(EMU_GRAPH_TRIM, device, 0, NULL);
}

EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                             void *value)
{
	struct emu_reply r;

	TRY(ask(EMU_GRAPH_GET, device, attribute, &r));
	*(cuuint64_t *)value = r.r[0];
	return CUDA_SUCCESS;
}

/* A high mark, to 0, and nothing else. */
EXPORT CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                             void *value)
{
	return *(cuuint64_t *)value ? CUDA_ERROR_INVALID_VALUE
	                            : ask(EMU_GRAPH_RESET, device, attribute, NULL);
}
