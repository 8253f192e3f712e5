/* captures.h: the stream captures that exist now.
 *
 * Any thread may call these functions, unless they say otherwise.
 */
#ifndef GPU_LEASE_CAPTURES_H
#define GPU_LEASE_CAPTURES_H

#include "base/watch.h"

#include <cuda.h>
#include <stdbool.h>

/* Called when the first capture is about to begin, and when the last one has ended, with
 * LOCK_CAPTURES held. */
WATCH_LIST(capture_watches, void(bool exist));

/* Is work that is submitted to this stream captured instead of executed? If its capture has been
 * invalidated, the driver refuses the work, so that it executes nothing either. */
bool stream_captures(CUstream stream);
bool captures_exist(void);
/* Sets the calling thread's capture mode, and returns the one before. In the relaxed mode our own
 * calls are allowed while another thread captures. */
CUstreamCaptureMode captures_mode(CUstreamCaptureMode mode);
/* If there is no capture, takes LOCK_CAPTURES, so that none begins until captures_let(), and
 * returns true. Otherwise returns false. */
bool captures_hold_off(void);
/* Releases LOCK_CAPTURES after captures_hold_off() has returned true. */
void captures_let(void);
/* The driver has destroyed the context and its streams: their captures leave the list. */
void captures_forget(CUcontext context);

/* Puts a capture on the list, before the driver begins it. CUDA_ERROR_OUT_OF_MEMORY if the host has
 * no memory for that. */
CUresult capture_begins(CUstream stream);
/* Takes the stream's capture off the list, if there is one. */
void capture_ended(CUstream stream);
/* Does the stream still capture, or have an invalidated capture, according to the driver? */
bool capture_goes_on(CUstream stream);

#endif
