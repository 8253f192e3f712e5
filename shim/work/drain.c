/* drain.c: finds out whether submitted work has finished, without disturbing stream captures.
 *
 * An event of a whole context (cuCtxRecordEvent) covers all streams of the context, also
 * non-blocking ones and graph launches.
 */
#include "work/drain.h"

#include "driver/lookup.h"
#include "work/captures.h"
#include "work/contexts.h"

/* In the relaxed mode the client thread's calls do not invalidate captures of other threads. */
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

/* For contexts where an event does not help: the context is broken, so that nothing executes in it
 * any more, or the driver is older than 12.5 and has no event for a whole context. */
static bool synchronize(void)
{
	REAL(cuCtxSynchronize)();
	return true;
}

/* CUDA_SUCCESS: all work that the context was given before this call has finished. Each call
 * records an event, except while the previous one is pending: events take space in the driver's
 * queue, which would soon be full. */
static CUresult query_waypoint(CUcontext context, struct waypoint *waypoint,
                               unsigned long submitted)
{
	CUresult result = CUDA_SUCCESS;

	if (waypoint->pending)
		result = REAL(cuEventQuery)(waypoint->event);
	if (result)
		return result;
	waypoint->passed = waypoint->recorded;
	waypoint->behind = submitted;
	waypoint->recorded = waypoint->now;
	result = REAL(cuCtxRecordEvent)(context, waypoint->event);
	if (!result)
		result = REAL(cuEventQuery)(waypoint->event);
	waypoint->pending = result == CUDA_ERROR_NOT_READY;
	if (!result)
		waypoint->passed = waypoint->recorded;
	return result;
}

/* While a capture exists no event of the whole context may be recorded. But if none of the
 * process's threads has submitted anything since the last one, it tells all: captured work does not
 * execute. */
static bool poll_in_capture(struct waypoint *waypoint, unsigned long submitted)
{
	if (!waypoint->event || submitted == UNSETTLED || waypoint->behind != submitted)
		return false;
	if (waypoint->pending)
		waypoint->pending = REAL(cuEventQuery)(waypoint->event) != CUDA_SUCCESS;
	return !waypoint->pending;
}

/* Has all work finished that the context was given before? */
static bool poll_context(CUcontext context, struct waypoint *waypoint, unsigned long submitted)
{
	CUresult result = CUDA_ERROR_NOT_FOUND;
	bool done;

	if (!captures_hold_off())
		return poll_in_capture(waypoint, submitted);
	if (REAL(cuCtxRecordEvent) && make_event(&waypoint->event))
		result = query_waypoint(context, waypoint, submitted);
	done = result == CUDA_SUCCESS || (result != CUDA_ERROR_NOT_READY && synchronize());
	captures_let();
	return done;
}

/* With a driver that could only synchronise, the answer is no. */
static bool poll_without_waiting(CUcontext context, struct waypoint *waypoint,
                                 unsigned long submitted)
{
	return REAL(cuCtxRecordEvent) && poll_context(context, waypoint, submitted);
}

bool poll_idle(unsigned long submitted)
{
	return contexts_poll(poll_without_waiting, submitted, contexts_several());
}

bool poll_drained(unsigned long submitted)
{
	return contexts_poll(poll_context, submitted, true);
}
