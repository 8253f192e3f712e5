/* drain.c: see when submitted work has finished, and leave stream captures alone.
 *
 * An event of a whole context (cuCtxRecordEvent) covers all its streams, those
 * that do not block and graph launches too.
 */
#include "work/drain.h"

#include "driver/lookup.h"
#include "work/captures.h"
#include "work/contexts.h"

/* The client thread's own calls must not count as unsafe during a capture. */
void drain_thread_starts(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (REAL(cuThreadExchangeStreamCaptureMode))
		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

static bool make_event(CUevent *event)
{
	unsigned int flags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;

	return *event || !REAL(cuEventCreate)(event, flags);
}

/* Where an event cannot tell (the context is broken, and nothing executes in it
 * any more; or the driver is older than 12.5 and has none for a whole context). */
static bool synchronized(void)
{
	REAL(cuCtxSynchronize)();
	return true;
}

/* Whether the context has come to a waypoint set now. One that it has not come to
 * stays the only one: waypoints are work too, and a driver's queue is soon full. */
static CUresult reached(CUcontext context, struct waypoint *waypoint)
{
	CUresult result = CUDA_SUCCESS;

	if (waypoint->pending)
		result = REAL(cuEventQuery)(waypoint->event);
	if (result)
		return result;
	result = REAL(cuCtxRecordEvent)(context, waypoint->event);
	if (!result)
		result = REAL(cuEventQuery)(waypoint->event);
	waypoint->pending = result == CUDA_ERROR_NOT_READY;
	return result;
}

/* Has everything finished that the context was given before? While a capture
 * goes on nobody may ask; nothing of it executes, and its end is waited for. */
static bool context_drained(CUcontext context, struct waypoint *waypoint)
{
	CUresult result = CUDA_ERROR_NOT_FOUND;
	bool done;

	if (!captures_hold_off())
		return false;
	if (REAL(cuCtxRecordEvent) && make_event(&waypoint->event))
		result = reached(context, waypoint);
	done = result == CUDA_SUCCESS || (result != CUDA_ERROR_NOT_READY && synchronized());
	captures_let();
	return done;
}

/* As long as nobody asks for a drain, an old driver is not made to wait. */
static bool context_idle(CUcontext context, struct waypoint *waypoint)
{
	return REAL(cuCtxRecordEvent) && context_drained(context, waypoint);
}

bool device_idle(void)
{
	return contexts_idle(context_idle, false);
}

bool drained(void)
{
	return contexts_idle(context_drained, true);
}
