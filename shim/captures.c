/* captures.c: which streams capture now.
 *
 * A synchronise or an event of the whole context, from any thread, destroys a
 * capture in that context. So captures are known from before they begin, and
 * whoever wants to touch a context makes sure that there is none until done.
 */
#include "shim.h"

#include <pthread.h>
#include <stdlib.h>

/* CU_STREAM_PER_THREAD is another stream in each thread. */
struct capture {
	struct capture *next;
	CUstream stream;
	pthread_t thread;
};

static struct capture *captures;
static atomic_int n_captures;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool captures_exist(void)
{
	return atomic_load(&n_captures) > 0;
}

CUstreamCaptureMode captures_mode(CUstreamCaptureMode mode)
{
	if (captures_exist() && REAL(cuThreadExchangeStreamCaptureMode))
		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	return mode;
}

bool captures_hold_off(void)
{
	pthread_mutex_lock(&lock);
	if (!captures_exist())
		return true;
	pthread_mutex_unlock(&lock);
	return false;
}

void captures_let(void)
{
	pthread_mutex_unlock(&lock);
}

static CUresult begins(CUstream stream)
{
	struct capture *capture = malloc(sizeof(*capture));

	if (!capture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	*capture = (struct capture){captures, stream, pthread_self()};
	captures = capture;
	atomic_fetch_add(&n_captures, 1);
	pthread_mutex_unlock(&lock);
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
	pthread_mutex_lock(&lock);
	for (struct capture **at = &captures; *at && !found; at = &(*at)->next) {
		if (!is_it(*at, stream))
			continue;
		found = *at;
		*at = found->next;
		atomic_fetch_sub(&n_captures, 1);
		break;
	}
	pthread_mutex_unlock(&lock);
	free(found);
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
	pthread_mutex_init(&lock, NULL);
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

/* Also an end that reports a broken capture ends it; the wrong thread does not. */
#define END(name, stream_now, parameters, arguments)                                               \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		CUresult result;                                                                   \
		NEED(name);                                                                        \
		result = real arguments;                                                           \
		if (result != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD &&                            \
		    result != CUDA_ERROR_INVALID_VALUE)                                            \
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
