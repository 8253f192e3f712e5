/* wait.c: a thread of the program waits for submitted work. */
#include "work/wait.h"

#include "driver/lookup.h"
#include "work/captures.h"

bool context_wait(CUcontext context, CUresult *result)
{
	CUevent event = NULL;
	CUcontext old;

	if (!captures_hold_off())
		return false;
	*result = REAL(cuCtxPushCurrent_v2)(context);
	if (*result) {
		captures_let();
		return true;
	}
	*result = CUDA_ERROR_NOT_FOUND;
	if (REAL(cuCtxRecordEvent) &&
	    !REAL(cuEventCreate)(&event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING))
		*result = REAL(cuCtxRecordEvent)(context, event);
	if (*result)
		*result = REAL(cuCtxSynchronize)();
	captures_let();
	if (event) {
		CUstreamCaptureMode mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);

		if (!*result)
			*result = REAL(cuEventSynchronize)(event);
		REAL(cuEventDestroy_v2)(event);
		captures_mode(mode);
	}
	REAL(cuCtxPopCurrent_v2)(&old);
	return true;
}
