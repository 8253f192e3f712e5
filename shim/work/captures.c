/* captures.c: the list of stream captures that exist now.
 *
 * A synchronise, or an event of the whole context, from any thread, invalidates a capture in that
 * context. So a capture enters the list before the driver begins it, and code that is about to
 * synchronise or record such an event first makes sure that there is no capture and that none
 * begins (captures_hold_off()).
 */
#include "work/captures.h"

#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"

#include <stdatomic.h>
#include <stdlib.h>

struct capture {
	struct capture *next;
	CUstream stream;
	CUcontext context; /* of the stream: the capture ends with it */
	pthread_t thread;  /* CU_STREAM_PER_THREAD is a different stream in each thread */
};

static struct capture *captures;
static atomic_int n_captures;
static struct lock lock = LOCK(LOCK_CAPTURES);

bool captures_exist(void)
{
	return atomic_load(&n_captures) > 0;
}

/* The mode is set even if there is no capture now: one may begin before the caller resets it. */
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

static void tell(bool exist)
{
	for_each_watch(capture_watches, watch) (*watch)(exist);
}

/* The caller holds the lock. */
static void leave(struct capture **at)
{
	struct capture *capture = *at;

	*at = capture->next;
	free(capture);
	if (atomic_fetch_sub(&n_captures, 1) == 1)
		tell(false);
}

CUresult capture_begins(CUstream stream)
{
	struct capture *capture = malloc(sizeof(*capture));
	CUcontext context = context_of(stream);

	if (!capture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	lock_take(&lock);
	*capture = (struct capture){captures, stream, context, pthread_self()};
	captures = capture;
	if (!atomic_fetch_add(&n_captures, 1))
		tell(true);
	lock_give(&lock);
	return CUDA_SUCCESS;
}

static bool is_capture_of(const struct capture *capture, CUstream stream)
{
	return capture->stream == stream &&
	       (stream != CU_STREAM_PER_THREAD || pthread_equal(capture->thread, pthread_self()));
}

void capture_ended(CUstream stream)
{
	struct capture **at = &captures;

	if (!captures_exist())
		return;
	lock_take(&lock);
	while (*at && !is_capture_of(*at, stream))
		at = &(*at)->next;
	if (*at)
		leave(at);
	lock_give(&lock);
}

void captures_forget(CUcontext context)
{
	lock_take(&lock);
	for (struct capture **at = &captures; *at;) {
		if ((*at)->context == context)
			leave(at);
		else
			at = &(*at)->next;
	}
	lock_give(&lock);
}

bool capture_goes_on(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return captures_exist() && REAL(cuStreamIsCapturing) &&
	       !REAL(cuStreamIsCapturing)(stream, &status) &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* It asks the driver, which alone knows the streams that have joined a capture by an event. */
bool stream_captures(CUstream stream)
{
	return stream && stream != CU_STREAM_LEGACY && capture_goes_on(stream);
}

static void in_child(void)
{
	lock_after_fork(&lock);
	captures = NULL; /* the parent's */
	atomic_store(&n_captures, 0);
}
FORK_WATCH(in_child);
