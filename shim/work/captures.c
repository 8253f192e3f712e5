/* captures.c: which streams capture now.
 *
 * A synchronise or an event of the whole context, from any thread, destroys a
 * capture in that context. So captures are known from before they begin, and
 * whoever wants to touch a context makes sure that there is none until done.
 */
#include "shim.h"

#include <stdlib.h>

/* CU_STREAM_PER_THREAD is another stream in each thread. */
struct capture {
	struct capture *next;
	CUstream stream;
	CUcontext context; /* of the stream: the capture ends with it */
	pthread_t thread;
};

static struct capture *captures;
static atomic_int n_captures;
static struct lock lock = LOCK(LOCK_CAPTURES);

bool captures_exist(void)
{
	return atomic_load(&n_captures) > 0;
}

/* Also while there is no capture: one may begin, or end, before the mode is given back. */
CUstreamCaptureMode captures_mode(CUstreamCaptureMode mode)
{
	if (REAL(cuThreadExchangeStreamCaptureMode))
		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	return mode;
}

bool captures_hold_off(void)
{
	lock_take(&lock);
	if (!captures_exist())
		return true;
	lock_give(&lock);
	return false;
}

void captures_let(void)
{
	lock_give(&lock);
}

static CUcontext context_of(CUstream stream)
{
	CUcontext context = NULL;
	CUgreenCtx green = NULL;

	if (REAL(cuStreamGetGreenCtx) && !REAL(cuStreamGetGreenCtx)(stream, &green) && green &&
	    !REAL(cuCtxFromGreenCtx)(&context, green))
		return context;
	if (!REAL(cuStreamGetCtx) || REAL(cuStreamGetCtx)(stream, &context))
		REAL(cuCtxGetCurrent)(&context);
	return context;
}

static CUresult begins(CUstream stream)
{
	struct capture *capture = malloc(sizeof(*capture));
	CUcontext context = context_of(stream);

	if (!capture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	lock_take(&lock);
	*capture = (struct capture){captures, stream, context, pthread_self()};
	captures = capture;
	atomic_fetch_add(&n_captures, 1);
	lock_give(&lock);
	return CUDA_SUCCESS;
}

static bool is_it(const struct capture *capture, CUstream stream)
{
	return capture->stream == stream &&
	       (stream != CU_STREAM_PER_THREAD || pthread_equal(capture->thread, pthread_self()));
}

/* Nothing happens if the stream does not capture. */
static void ended(CUstream stream)
{
	struct capture *found = NULL;

	if (!captures_exist())
		return;
	lock_take(&lock);
	for (struct capture **at = &captures; *at && !found; at = &(*at)->next) {
		if (!is_it(*at, stream))
			continue;
		found = *at;
		*at = found->next;
		atomic_fetch_sub(&n_captures, 1);
		break;
	}
	lock_give(&lock);
	free(found);
}

void captures_forget(CUcontext context)
{
	lock_take(&lock);
	for (struct capture **at = &captures; *at;) {
		struct capture *capture = *at;

		if (capture->context != context) {
			at = &capture->next;
			continue;
		}
		*at = capture->next;
		atomic_fetch_sub(&n_captures, 1);
		free(capture);
	}
	lock_give(&lock);
}

/* Does the driver say that it goes on? */
static bool goes_on(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return captures_exist() && REAL(cuStreamIsCapturing) &&
	       !REAL(cuStreamIsCapturing)(stream, &status) &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Also of streams that joined a capture by an event, which only the driver knows. */
bool stream_captures(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (!captures_exist() || !stream || stream == CU_STREAM_LEGACY ||
	    !REAL(cuStreamIsCapturing))
		return false;
	return REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS &&
	       status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

void captures_after_fork(void)
{
	lock_after_fork(&lock);
	captures = NULL; /* the parent's */
	atomic_store(&n_captures, 0);
}

/* -- the driver's functions -------------------------------------------------- */

#define BEGIN(name, stream_now, parameters, arguments)                                             \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		CUresult result;                                                                   \
		NEED(name);                                                                        \
		TRY(begins(stream_now));                                                           \
		result = real arguments;                                                           \
		if (result)                                                                        \
			ended(stream_now);                                                         \
		return result;                                                                     \
	}

#define BEGIN2(name, parameters, arguments)                                                        \
	BEGIN(name, stream, parameters, arguments)                                                 \
	BEGIN(name##_ptsz, PER_THREAD(stream), parameters, arguments)

/* Also an end that fails may end it: one that is broken, or one of another thread. */
#define END(name, stream_now, parameters, arguments)                                               \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		CUresult result;                                                                   \
		NEED(name);                                                                        \
		result = real arguments;                                                           \
		if (!result || !goes_on(stream_now))                                               \
			ended(stream_now);                                                         \
		return result;                                                                     \
	}

#define END2(name, parameters, arguments)                                                          \
	END(name, stream, parameters, arguments)                                                   \
	END(name##_ptsz, PER_THREAD(stream), parameters, arguments)

BEGIN2(cuStreamBeginCapture, (CUstream stream), (stream))
BEGIN2(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGIN2(cuStreamBeginCaptureToGraph,
       (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,
        size_t n, CUstreamCaptureMode mode),
       (stream, graph, nodes, edges, n, mode))
END2(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (stream, graph))
#if CUDA_VERSION >= 13020
BEGIN2(cuStreamBeginCaptureToCig, (CUstream stream, CUstreamCigCaptureParams *params),
       (stream, params))
END2(cuStreamEndCaptureToCig, (CUstream stream), (stream))
#endif
#if CUDA_VERSION >= 13030
BEGIN2(cuStreamBeginRecaptureToGraph,
       (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback,
        void *data),
       (stream, mode, graph, callback, data))
#endif

/* A stream that is destroyed takes its capture with it. */
#define DESTROY(name)                                                                              \
	EXPORT CUresult name(CUstream stream)                                                      \
	{                                                                                          \
		NEED(name);                                                                        \
		TRY(real(stream));                                                                 \
		ended(stream);                                                                     \
		return CUDA_SUCCESS;                                                               \
	}

DESTROY(cuStreamDestroy)
DESTROY(cuStreamDestroy_v2)
