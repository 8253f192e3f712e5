/* context_races.c: two threads, and captures or the primary context. */
#include "races.h"

/* -- captures ---------------------------------------------------------------------- */

static CUstream capturing;

static void begin_capture(void)
{
	OK(cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static void end_capture(void)
{
	CUgraph graph;

	OK(cuStreamEndCapture(capturing, &graph));
}

/* What this thread's mode is after memory in stream order. */
static void asks_its_mode(struct other *other)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

	OK(cuThreadExchangeStreamCaptureMode(&mode));
	OK(cuMemAllocAsync(&other->pointer, 4096, NULL));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	other->result = (CUresult)mode;
}

static void mode_after(void (*before)(void), void (*meanwhile)(void))
{
	struct other other = {0};

	set_up();
	OK(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
	if (before)
		before();
	emugpu_hold("cuMemAllocManaged", 0);
	start(&other, asks_its_mode);
	held();
	meanwhile();
	emugpu_let();
	pthread_join(other.thread, NULL);
	if ((int)other.result != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
		fail("the thread's capture mode has changed", (int)other.result);
}

void capture_ends_meanwhile(void)
{
	mode_after(begin_capture, end_capture);
}

void capture_begins_meanwhile(void)
{
	mode_after(NULL, begin_capture);
}

/* -- primary contexts ---------------------------------------------------------------- */

static void releases(struct other *other)
{
	(void)other;
	OK(cuDevicePrimaryCtxRelease(0));
}

/* A library lets its own hold on the primary context go, and the program goes on. */
void released_not_for_the_last_time(void)
{
	struct other other = {0};
	unsigned char byte;
	CUdeviceptr pointer;
	CUcontext again;

	set_up();
	OK(cuDevicePrimaryCtxRetain(&again, 0));
	OK(cuMemAlloc(&pointer, 8 * MIB));
	OK(cuMemsetD8(pointer, 7, 8 * MIB));
	OK(cuCtxSynchronize());
	say("ready");
	wait_for_test(); /* its memory has left, and comes back */
	OK(cuMemcpyDtoH(&byte, pointer, 1));
	emugpu_hold("cuMemHostUnregister", SOON_MS);
	start(&other, releases);
	pthread_join(other.thread, NULL);
	if (emugpu_met())
		fail("host copies were let go, though the context goes on", 0);
	emugpu_let();
	say("released");
	wait_for_test(); /* once more */
	OK(cuMemcpyDtoH(&byte, pointer, 1));
	if (byte != 7)
		fail("a byte was lost", byte);
}
