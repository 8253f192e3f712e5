/* drain.c: see when submitted work has finished, and leave stream captures alone.
 *
 * An event of a whole context (cuCtxRecordEvent) covers all its streams, those
 * that do not block and graph launches too.
 */
#include "shim.h"

/* The client thread's own calls must not count as unsafe during a capture. */
void drain_thread_starts(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (REAL(cuThreadExchangeStreamCaptureMode))
		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

bool record_behind(CUcontext context, CUevent event)
{
	return REAL(cuCtxRecordEvent) && !REAL(cuCtxRecordEvent)(context, event);
}

static bool make_event(CUevent *event)
{
	unsigned int flags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;

	return *event || !REAL(cuEventCreate)(event, flags);
}

/* Has everything finished that the context was given before? While a capture
 * goes on nobody may ask; nothing of it executes, and its end is waited for. */
static bool context_idle(CUcontext context, CUevent *event)
{
	bool idle;

	if (!captures_hold_off())
		return false;
	idle = make_event(event) && record_behind(context, *event) &&
	       REAL(cuEventQuery)(*event) == CUDA_SUCCESS;
	captures_let();
	return idle;
}

/* With a driver before 12.5, which has no event of a whole context, it waits here. */
static bool context_drained(CUcontext context, CUevent *event)
{
	if (REAL(cuCtxRecordEvent))
		return context_idle(context, event);
	if (!captures_hold_off())
		return false;
	REAL(cuCtxSynchronize)();
	captures_let();
	return true;
}

bool device_idle(void)
{
	return contexts_idle(context_idle, false);
}

bool drained(void)
{
	return contexts_idle(context_drained, true);
}
