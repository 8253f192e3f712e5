/* capture.c: the emulated libcuda: stream captures, with the real traps.
 *
 * A capture lives in the client: operations on a capturing stream are recorded
 * as requests, and a graph launch sends them. The order of recording is a
 * valid order of execution, so a graph is a list.
 */
#include "abi/client.h"

#include <stdlib.h>
#include <string.h>

static struct emu_capture *captures; /* under emu_lock */
static unsigned long long next_id = 1;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void emu_invalidate(struct emu_capture *capture)
{
	capture->invalid = true;
}

struct emu_capture *emu_capture_find(unsigned long long id)
{
	struct emu_capture *found = NULL;

	pthread_mutex_lock(&emu_lock);
	for (struct emu_capture *c = captures; c && !found; c = c->next)
		found = c->id == id ? c : NULL;
	pthread_mutex_unlock(&emu_lock);
	return found;
}

/* A capture in GLOBAL mode forbids these calls to every thread, one in
 * THREAD_LOCAL mode to its own, unless the calling thread has said RELAXED. */
CUresult emu_unsafe_call(void)
{
	CUresult result = CUDA_SUCCESS;

	if (!__atomic_load_n(&captures, __ATOMIC_RELAXED) ||
	    thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return result;
	pthread_mutex_lock(&emu_lock);
	for (struct emu_capture *c = captures; c; c = c->next) {
		bool mine = pthread_equal(c->owner, pthread_self());

		if ((c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
		     (mine || thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) ||
		    (c->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && mine)) {
			emu_invalidate(c);
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	pthread_mutex_unlock(&emu_lock);
	return result;
}

/* Synchronising a context destroys every capture in it, RELAXED ones too. */
CUresult emu_capture_forbids_sync(struct emu_ctx *ctx)
{
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&emu_lock);
	for (struct emu_capture *c = captures; c; c = c->next) {
		if (c->origin->ctx == ctx || c->origin->ctx->whole == ctx) {
			emu_invalidate(c);
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	pthread_mutex_unlock(&emu_lock);
	return result;
}

/* Work on the legacy stream would wait for a blocking stream that captures. */
CUresult emu_capture_legacy(struct emu_ctx *ctx)
{
	CUresult result = CUDA_SUCCESS;

	if (!__atomic_load_n(&captures, __ATOMIC_RELAXED))
		return result;
	pthread_mutex_lock(&emu_lock);
	for (struct emu_capture *c = captures; c; c = c->next) {
		if (c->origin->ctx == ctx && !(c->origin->flags & CU_STREAM_NON_BLOCKING) &&
		    c->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
			emu_invalidate(c);
			result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	}
	pthread_mutex_unlock(&emu_lock);
	return result;
}

CUresult emu_capture_add(struct emu_capture *capture, const struct emu_request *request)
{
	if (capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (request->op == EMU_RECORD || request->op == EMU_WAIT)
		return CUDA_SUCCESS; /* a list needs no more than its order */
	return emu_graph_add(capture->graph, request, NULL);
}

static CUresult begin(CUstream handle, CUstreamCaptureMode mode)
{
	struct emu_capture *capture;
	struct target t;

	TRY(emu_target(handle, &t));
	if (!t.stream)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (t.stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	capture = calloc(1, sizeof(*capture));
	if (!capture || !(capture->graph = calloc(1, sizeof(*capture->graph)))) {
		free(capture);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	capture->mode = mode;
	capture->owner = pthread_self();
	capture->origin = t.stream;
	capture->graph->ctx = t.ctx;
	pthread_mutex_lock(&emu_lock);
	capture->id = next_id++;
	capture->next = captures;
	captures = capture;
	t.stream->capture = capture;
	pthread_mutex_unlock(&emu_lock);
	return CUDA_SUCCESS;
}

/* emu_lock is held. */
static void leave(const struct emu_capture *capture)
{
	for (struct emu_capture **at = &captures; *at; at = &(*at)->next) {
		if (*at == capture) {
			*at = capture->next;
			break;
		}
	}
	emu_streams_leave(capture);
}

void emu_capture_drop(struct emu_capture *capture)
{
	leave(capture);
	emu_graph_free(capture->graph, true);
	free(capture);
}

static CUresult end(CUstream handle, CUgraph *graph)
{
	struct emu_capture *capture;
	struct target t;
	bool invalid, wrong;

	TRY(emu_target(handle, &t));
	capture = t.stream ? t.stream->capture : NULL;
	if (!capture || capture->origin != t.stream)
		return CUDA_ERROR_ILLEGAL_STATE;
	/* A thread that may not end the capture gets an error, but the capture ends all the
	 * same. */
	wrong = capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
	        !pthread_equal(capture->owner, pthread_self());
	pthread_mutex_lock(&emu_lock);
	leave(capture);
	pthread_mutex_unlock(&emu_lock);
	invalid = capture->invalid || wrong;
	*graph = invalid ? NULL : (CUgraph)capture->graph;
	if (invalid)
		emu_graph_free(capture->graph, false);
	free(capture);
	if (wrong)
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	return invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

static CUresult status(CUstream handle, CUstreamCaptureStatus *out, cuuint64_t *id)
{
	struct target t;

	TRY(emu_target(handle, &t));
	*out = CU_STREAM_CAPTURE_STATUS_NONE;
	if (t.stream && t.stream->capture) {
		*out = t.stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
		                                  : CU_STREAM_CAPTURE_STATUS_ACTIVE;
		if (id)
			*id = t.stream->capture->id;
	}
	return CUDA_SUCCESS;
}

#undef cuStreamBeginCapture
EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	EMU_POINT();
	return begin(emu_legacy(stream), mode);
}

EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
	return begin(emu_per_thread(stream), mode);
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	return end(emu_legacy(stream), graph);
}

EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
	return end(emu_per_thread(stream), graph);
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *out)
{
	return status(emu_legacy(stream), out, NULL);
}

EXPORT CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *out)
{
	return status(emu_per_thread(stream), out, NULL);
}

static CUresult capture_info(CUstream stream, CUstreamCaptureStatus *out, cuuint64_t *id,
                             CUgraph *graph, const CUgraphNode **dependencies,
                             const CUgraphEdgeData **edges, size_t *n)
{
	if (graph || dependencies || edges)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (n)
		*n = 0;
	return status(stream, out, id);
}

/* Up to CUDA 12.2 without, since then with the edges between the captured nodes. */
#define INFO_V2                                                                                    \
	CUstream stream, CUstreamCaptureStatus *out, cuuint64_t *id, CUgraph *graph,               \
	    const CUgraphNode **dependencies, size_t *n
#define INFO_V3                                                                                    \
	CUstream stream, CUstreamCaptureStatus *out, cuuint64_t *id, CUgraph *graph,               \
	    const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *n

EXPORT CUresult cuStreamGetCaptureInfo_v2(INFO_V2)
{
	return capture_info(emu_legacy(stream), out, id, graph, dependencies, NULL, n);
}

EXPORT CUresult cuStreamGetCaptureInfo_v2_ptsz(INFO_V2)
{
	return capture_info(emu_per_thread(stream), out, id, graph, dependencies, NULL, n);
}

#undef cuStreamGetCaptureInfo_v3
EXPORT CUresult cuStreamGetCaptureInfo_v3(INFO_V3)
{
	return capture_info(emu_legacy(stream), out, id, graph, dependencies, edges, n);
}

EXPORT CUresult cuStreamGetCaptureInfo_v3_ptsz(INFO_V3)
{
	return capture_info(emu_per_thread(stream), out, id, graph, dependencies, edges, n);
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	EMU_POINT();
	CUstreamCaptureMode old = thread_mode;

	TRY(emu_ready());
	thread_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}
