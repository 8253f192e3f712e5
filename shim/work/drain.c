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
static bool synchronize(void)
{
	REAL(cuCtxSynchronize)();
	return true;
}

/* Has the context come to a waypoint that is set now? Where it has not come to the last one, no
 * other is set: waypoints are work too, and a driver's queue is soon full. */
static CUresult query_waypoint(CUcontext context, struct waypoint *waypoint)
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
static bool poll_context(CUcontext context, struct waypoint *waypoint)
{
	CUresult result = CUDA_ERROR_NOT_FOUND;
	bool done;

	if (!captures_hold_off())
		return false;
	if (REAL(cuCtxRecordEvent) && make_event(&waypoint->event))
		result = query_waypoint(context, waypoint);
	done = result == CUDA_SUCCESS || (result != CUDA_ERROR_NOT_READY && synchronize());
	captures_let();
	return done;
}

/* As long as nobody asks for a drain, an old driver is not made to wait. */
static bool poll_without_waiting(CUcontext context, struct waypoint *waypoint)
{
	return REAL(cuCtxRecordEvent) && poll_context(context, waypoint);
}

bool poll_idle(void)
{
	return contexts_poll(poll_without_waiting, false);
}

bool poll_drained(void)
{
	return contexts_poll(poll_context, true);
}
