/* stream.c: the emulated libcuda: streams, events and host functions. */
#include "abi/client.h"

#include <stdlib.h>

static struct emu_stream *streams; /* all of the process, under emu_lock */

/* The per-thread default streams of this thread, one a context. */
static __thread struct {
	uint64_t ctx;
	struct emu_stream *stream;
} mine[8];

static CUresult create(struct emu_ctx *ctx, unsigned flags, struct emu_stream **out)
{
	struct emu_request q = {.op = EMU_STREAM_CREATE,
	                        .arg = {ctx->id, !!(flags & CU_STREAM_NON_BLOCKING)}};
	struct emu_stream *stream = calloc(1, sizeof(*stream));
	struct emu_reply r;
	CUresult result = stream ? emu_call(&q, &r, NULL) : CUDA_ERROR_OUT_OF_MEMORY;

	if (result) {
		free(stream);
		return result;
	}
	stream->ctx = ctx;
	stream->id = r.r[0];
	stream->flags = flags;
	pthread_mutex_lock(&emu_lock);
	stream->next = streams;
	streams = stream;
	pthread_mutex_unlock(&emu_lock);
	*out = stream;
	return CUDA_SUCCESS;
}

/* Is it a stream of this context (0: of any context)? */
static bool known(const struct emu_stream *stream, uint64_t ctx)
{
	bool found = false;

	pthread_mutex_lock(&emu_lock);
	for (const struct emu_stream *s = streams; s; s = s->next)
		found |= s == stream && (!ctx || s->ctx->id == ctx);
	pthread_mutex_unlock(&emu_lock);
	return found;
}

static CUresult per_thread(struct emu_ctx *ctx, struct emu_stream **out)
{
	size_t slot = 0, n = sizeof(mine) / sizeof(mine[0]);

	for (size_t i = 0; i < n; i++) {
		if (mine[i].stream && mine[i].ctx == ctx->id) {
			*out = mine[i].stream;
			return CUDA_SUCCESS;
		}
	}
	/* A slot that is free, or whose context has ended with its streams. */
	while (slot < n && mine[slot].stream && known(mine[slot].stream, mine[slot].ctx))
		slot++;
	if (slot == n)
		return CUDA_ERROR_OUT_OF_MEMORY;
	TRY(create(ctx, CU_STREAM_DEFAULT, &mine[slot].stream));
	mine[slot].ctx = ctx->id;
	*out = mine[slot].stream;
	return CUDA_SUCCESS;
}

CUresult emu_target(CUstream handle, struct target *out)
{
	TRY(emu_ready());
	*out = (struct target){0};
	if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
		TRY(emu_need_ctx(&out->ctx));
		out->id = out->ctx->id;
		if (handle != CU_STREAM_PER_THREAD)
			return CUDA_SUCCESS;
		TRY(per_thread(out->ctx, &out->stream));
	} else {
		out->stream = (struct emu_stream *)handle;
		if (!known(out->stream, 0))
			return CUDA_ERROR_INVALID_HANDLE;
		out->ctx = out->stream->ctx;
	}
	out->id = out->stream->id;
	return out->ctx->error;
}

CUresult emu_submit(CUstream handle, struct emu_request *request, const void *payload)
{
	struct target t;

	TRY(emu_target(handle, &t));
	if (t.stream && t.stream->capture)
		return emu_capture_add(t.stream->capture, request);
	if (!t.stream)
		TRY(emu_capture_legacy(t.ctx));
	request->arg[0] = t.id;
	return emu_post(request, payload);
}

void emu_streams_leave(const struct emu_capture *capture)
{
	for (struct emu_stream *s = streams; s; s = s->next)
		if (s->capture == capture)
			s->capture = NULL;
}

/* emu_lock is held. */
static void drop(struct emu_stream *stream)
{
	for (struct emu_stream **at = &streams; *at; at = &(*at)->next) {
		if (*at == stream) {
			*at = stream->next;
			break;
		}
	}
	if (stream->capture && stream->capture->origin == stream)
		emu_capture_drop(stream->capture);
	free(stream);
}

void emu_streams_drop(const struct emu_ctx *ctx)
{
	struct emu_stream **at = &streams, *stream;

	while ((stream = *at)) {
		if (stream->ctx == ctx)
			drop(stream);
		else
			at = &stream->next;
	}
}

CUresult emu_create_stream(struct emu_ctx *ctx, unsigned flags, CUstream *out)
{
	struct emu_stream *stream;

	TRY(create(ctx, flags, &stream));
	*out = (CUstream)stream;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	struct emu_ctx *ctx;

	EMU_POINT();
	TRY(emu_need_ctx(&ctx));
	return emu_create_stream(ctx, flags, out);
}

EXPORT CUresult cuStreamDestroy(CUstream handle)
{
	struct emu_stream *stream = (struct emu_stream *)handle;
	struct emu_request q = {.op = EMU_STREAM_DESTROY};
	struct target t;

	TRY(emu_target(handle, &t));
	if (!t.stream)
		return CUDA_ERROR_INVALID_HANDLE;
	q.arg[0] = stream->id;
	TRY(emu_call(&q, NULL, NULL));
	pthread_mutex_lock(&emu_lock);
	drop(stream);
	pthread_mutex_unlock(&emu_lock);
	return CUDA_SUCCESS;
}

static CUresult ask(CUstream handle, enum emu_op op)
{
	struct emu_request q = {.op = op};
	struct target t;

	TRY(emu_target(handle, &t));
	if (t.stream && t.stream->capture) {
		emu_invalidate(t.stream->capture);
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (op == EMU_STREAM_QUERY)
		TRY(emu_unsafe_call());
	q.arg[0] = t.id;
	return emu_sticky(t.ctx, emu_call(&q, NULL, NULL));
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
	return ask(emu_legacy(stream), EMU_STREAM_QUERY);
}

EXPORT CUresult cuStreamQuery_ptsz(CUstream stream)
{
	return ask(emu_per_thread(stream), EMU_STREAM_QUERY);
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
	return ask(emu_legacy(stream), EMU_STREAM_SYNC);
}

EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
	return ask(emu_per_thread(stream), EMU_STREAM_SYNC);
}

static CUresult get_id(CUstream handle, unsigned long long *id)
{
	struct target t;

	TRY(emu_target(handle, &t));
	*id = t.id;
	return CUDA_SUCCESS;
}

/* green: since CUDA 12.5, and with it the context that the green one is a part of. */
static CUresult get_ctx(CUstream handle, CUcontext *ctx, CUgreenCtx *green)
{
	struct target t;

	TRY(emu_target(handle, &t));
	*ctx = (CUcontext)(green ? emu_owner(t.ctx) : t.ctx);
	if (green)
		*green = t.ctx->whole ? (CUgreenCtx)t.ctx : NULL;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
	return get_id(emu_legacy(stream), id);
}

EXPORT CUresult cuStreamGetId_ptsz(CUstream stream, unsigned long long *id)
{
	return get_id(emu_per_thread(stream), id);
}

EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *ctx)
{
	return get_ctx(emu_legacy(stream), ctx, NULL);
}

EXPORT CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext *ctx)
{
	return get_ctx(emu_per_thread(stream), ctx, NULL);
}

EXPORT CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *ctx, CUgreenCtx *green)
{
	return get_ctx(emu_legacy(stream), ctx, green);
}

EXPORT CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext *ctx, CUgreenCtx *green)
{
	return get_ctx(emu_per_thread(stream), ctx, green);
}

CUresult emu_make_event(struct emu_ctx *ctx, uint64_t id, unsigned flags, CUevent *out)
{
	struct emu_event *event = calloc(1, sizeof(*event));

	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*event = (struct emu_event){.id = id, .ctx = ctx, .flags = flags};
	*out = (CUevent)event;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	struct emu_request q = {.op = EMU_EVENT_CREATE};
	struct emu_reply r;
	struct emu_ctx *ctx;

	TRY(emu_need_ctx(&ctx));
	if (flags & CU_EVENT_INTERPROCESS)
		return CUDA_ERROR_NOT_SUPPORTED;
	q.arg[0] = ctx->id;
	TRY(emu_call(&q, &r, NULL));
	return emu_make_event(ctx, r.r[0], flags, out);
}

EXPORT CUresult cuEventDestroy(CUevent event)
{
	struct emu_request q = {.op = EMU_EVENT_DESTROY};

	TRY(emu_ready());
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	q.arg[0] = ((struct emu_event *)event)->id;
	free(event);
	return emu_call(&q, NULL, NULL);
}

static CUresult record(CUevent handle, CUstream stream)
{
	struct emu_event *event = (struct emu_event *)handle;
	struct emu_request q = {.op = EMU_RECORD};
	struct target t;

	TRY(emu_target(stream, &t));
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	event->capture = t.stream && t.stream->capture ? t.stream->capture->id : 0;
	q.arg[1] = event->id;
	return emu_submit(stream, &q, NULL);
}

static CUresult wait(CUstream stream, CUevent handle)
{
	struct emu_event *event = (struct emu_event *)handle;
	struct emu_request q = {.op = EMU_WAIT};
	struct target t;

	TRY(emu_target(stream, &t));
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->capture) {
		struct emu_capture *capture = emu_capture_find(event->capture);

		if (!capture)
			return CUDA_ERROR_INVALID_VALUE;
		/* Waiting for an event of a capture draws the stream into it. */
		if (t.stream && !t.stream->capture)
			t.stream->capture = capture;
	}
	q.arg[1] = event->id;
	return emu_submit(stream, &q, NULL);
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return record(event, emu_legacy(stream));
}

EXPORT CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
	return record(event, emu_per_thread(stream));
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	(void)flags;
	return wait(emu_legacy(stream), event);
}

EXPORT CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags)
{
	(void)flags;
	return wait(emu_per_thread(stream), event);
}

static CUresult ask_event(CUevent handle, enum emu_op op, struct emu_reply *r)
{
	struct emu_event *event = (struct emu_event *)handle;
	struct emu_request q = {.op = op};
	CUresult result;

	TRY(emu_ready());
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	result = emu_unsafe_call();
	if (event->capture)
		return emu_capture_find(event->capture) ? CUDA_ERROR_CAPTURED_EVENT
		                                        : CUDA_ERROR_INVALID_VALUE;
	TRY(result);
	q.arg[0] = event->id;
	return emu_sticky(event->ctx, emu_call(&q, r, NULL));
}

EXPORT CUresult cuEventQuery(CUevent event)
{
	EMU_POINT();
	return ask_event(event, EMU_EVENT_QUERY, NULL);
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
	return ask_event(event, EMU_EVENT_SYNC, NULL);
}

#undef cuEventElapsedTime
CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end);
EXPORT CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	struct emu_reply a, b;

	if (!start || !end ||
	    (((struct emu_event *)start)->flags | ((struct emu_event *)end)->flags) &
	        CU_EVENT_DISABLE_TIMING)
		return CUDA_ERROR_INVALID_HANDLE;
	TRY(ask_event(start, EMU_EVENT_QUERY, &a));
	TRY(ask_event(end, EMU_EVENT_QUERY, &b));
	if (!a.r[0] || !b.r[0])
		return CUDA_ERROR_INVALID_HANDLE;
	*ms = (float)((double)(int64_t)(b.r[1] - a.r[1]) / 1e6);
	return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end);
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	return cuEventElapsedTime_v2(ms, start, end);
}

static CUresult host_func(CUstream stream, CUhostFn function, void *data)
{
	struct emu_request q = {
	    .op = EMU_HOST_FUNC,
	    .arg = {0, (uint64_t)(uintptr_t)function, (uint64_t)(uintptr_t)data}};

	TRY(emu_ready());
	if (!function)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(emu_start_callbacks());
	return emu_submit(stream, &q, NULL);
}

EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
	return host_func(emu_legacy(stream), function, data);
}

EXPORT CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *data)
{
	return host_func(emu_per_thread(stream), function, data);
}

/* The mode says how a waiting thread waits; this driver always sleeps. */
EXPORT CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void *data,
                                    unsigned int mode)
{
	return mode > CU_HOST_TASK_SPINWAIT ? CUDA_ERROR_INVALID_VALUE
	                                    : host_func(emu_legacy(stream), function, data);
}

EXPORT CUresult cuLaunchHostFunc_v2_ptsz(CUstream stream, CUhostFn function, void *data,
                                         unsigned int mode)
{
	return mode > CU_HOST_TASK_SPINWAIT ? CUDA_ERROR_INVALID_VALUE
	                                    : host_func(emu_per_thread(stream), function, data);
}
