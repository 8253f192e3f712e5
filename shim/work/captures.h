/* captures.h: which streams capture now. */
#ifndef GPU_LEASE_CAPTURES_H
#define GPU_LEASE_CAPTURES_H

#include <cuda.h>
#include <stdbool.h>

bool stream_captures(CUstream stream);
bool captures_exist(void);
/* This thread's capture mode: what the driver's own calls may do beside another thread's
 * capture, ours may too. Returns what it was. */
CUstreamCaptureMode captures_mode(CUstreamCaptureMode mode);
bool captures_hold_off(void); /* true: there is none, and none begins until captures_let() */
void captures_let(void);
void captures_forget(CUcontext context); /* it is gone, with its streams */

/* A capture is known from before the driver begins it, */
CUresult capture_begins(CUstream stream);
/* and until it has ended; nothing happens if the stream does not capture. */
void capture_ended(CUstream stream);
bool capture_goes_on(CUstream stream); /* as the driver says */

#endif
