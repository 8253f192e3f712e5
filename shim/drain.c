/* drain.c: wait for submitted work, see idleness, and leave stream captures alone.
 *
 * An event of a whole context (cuCtxRecordEvent) covers all its streams, those
 * that do not block and graph launches too. It is waited for without spinning.
 */
#include "shim.h"

#include <unistd.h>

#define LOOK_AGAIN_US 500

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

static bool drain_context(CUcontext context, CUevent *event)
{
	bool recorded;

	/* Nothing of a capture executes; wait for its end. */
	while (!captures_hold_off()) {
		if (atomic_load(&process_ends))
			return false;
		usleep(LOOK_AGAIN_US);
	}
	recorded = make_event(event) && record_behind(context, *event);
	if (!recorded) /* a driver before 12.5; it spins, and no capture may begin meanwhile */
		REAL(cuCtxSynchronize)();
	captures_let();
	if (recorded)
		REAL(cuEventSynchronize)(*event);
	return true;
}

void drain(void)
{
	contexts_each(drain_context);
}

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

static atomic_bool all_idle;

static bool look_at(CUcontext context, CUevent *event)
{
	bool idle = context_idle(context, event);

	atomic_store(&all_idle, idle);
	return idle;
}

bool device_idle(void)
{
	atomic_store(&all_idle, true);
	contexts_each(look_at);
	return atomic_load(&all_idle);
}
