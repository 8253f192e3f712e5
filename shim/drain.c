/* drain.c: wait for submitted work, see idleness, and leave stream captures alone.
 *
 * An event of a whole context (cuCtxRecordEvent) covers all its streams, but
 * recording one during a capture destroys the capture; so captures are counted
 * and no event is recorded while there is one.
 */
#include "shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOK_AGAIN_US 500
#define MAX_CONTEXTS 128

/* A context of the process. The event is recorded by the client thread only. */
static struct entry {
	CUcontext context;
	CUdevice device;
	CUevent event;
} contexts[MAX_CONTEXTS];

static int n_contexts;
static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int captures;

void context_add(CUcontext context, CUdevice device)
{
	bool known = false;

	pthread_mutex_lock(&context_lock);
	for (int i = 0; i < n_contexts; i++)
		known |= contexts[i].context == context;
	if (!known && n_contexts < MAX_CONTEXTS)
		contexts[n_contexts++] = (struct entry){context, device, NULL};
	else if (!known)
		complain("more than %d contexts: work of this one is not waited for", MAX_CONTEXTS);
	pthread_mutex_unlock(&context_lock);
}

/* Between begin and end the driver destroys the context; nobody uses it then. */
void context_remove_begin(CUcontext context)
{
	pthread_mutex_lock(&context_lock);
	for (int i = 0; i < n_contexts; i++) {
		if (contexts[i].context == context) {
			/* The event goes with its context. */
			contexts[i] = contexts[--n_contexts];
			break;
		}
	}
}

void context_remove_end(void)
{
	pthread_mutex_unlock(&context_lock);
}

CUcontext context_of(CUdevice device)
{
	CUcontext found = NULL;

	pthread_mutex_lock(&context_lock);
	for (int i = 0; i < n_contexts && !found; i++)
		if (contexts[i].device == device)
			found = contexts[i].context;
	pthread_mutex_unlock(&context_lock);
	return found;
}

void capture_begins(void)
{
	pthread_mutex_lock(&capture_lock);
	atomic_fetch_add(&captures, 1);
	pthread_mutex_unlock(&capture_lock);
}

void capture_ended(void)
{
	atomic_fetch_sub(&captures, 1);
}

bool stream_captures(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (!atomic_load(&captures) || !stream || stream == CU_STREAM_LEGACY ||
	    !REAL(cuStreamIsCapturing))
		return false;
	return REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS &&
	       status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* The client thread's own calls must not count as unsafe during a capture. */
void drain_thread_starts(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (REAL(cuThreadExchangeStreamCaptureMode))
		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

/* Record the entry's event behind everything in its context; false while a
 * capture forbids it. The context is current. */
static bool record(struct entry *entry)
{
	bool recorded = false;

	if (!entry->event &&
	    REAL(cuEventCreate)(&entry->event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING))
		entry->event = NULL;
	pthread_mutex_lock(&capture_lock);
	if (!atomic_load(&captures))
		recorded = entry->event && REAL(cuCtxRecordEvent) &&
		           !REAL(cuCtxRecordEvent)(entry->context, entry->event);
	pthread_mutex_unlock(&capture_lock);
	return recorded;
}

static void drain_context(struct entry *entry)
{
	CUcontext old;

	if (REAL(cuCtxPushCurrent)(entry->context))
		return;
	while (!record(entry) && !atomic_load(&process_ends)) {
		if (!atomic_load(&captures)) {
			/* A driver before 12.5: synchronise, which spins on its own terms. */
			CUresult (*synchronize)(void) =
			    (CUresult(*)(void))real_symbol("cuCtxSynchronize");

			pthread_mutex_lock(&capture_lock);
			if (synchronize && !atomic_load(&captures))
				synchronize();
			pthread_mutex_unlock(&capture_lock);
			REAL(cuCtxPopCurrent)(&old);
			return;
		}
		usleep(LOOK_AGAIN_US); /* a capture: nothing of it executes; wait for its end */
	}
	if (entry->event && !atomic_load(&process_ends))
		REAL(cuEventSynchronize)(entry->event);
	REAL(cuCtxPopCurrent)(&old);
}

void drain(void)
{
	pthread_mutex_lock(&context_lock);
	for (int i = 0; i < n_contexts && !atomic_load(&process_ends); i++)
		drain_context(&contexts[i]);
	pthread_mutex_unlock(&context_lock);
}

/* Has everything finished that was submitted before this call? */
bool device_idle(void)
{
	bool idle = true;
	CUcontext old;

	pthread_mutex_lock(&context_lock);
	for (int i = 0; i < n_contexts && idle && !atomic_load(&process_ends); i++) {
		struct entry *entry = &contexts[i];

		if (REAL(cuCtxPushCurrent)(entry->context))
			continue;
		idle = record(entry) && REAL(cuEventQuery)(entry->event) == CUDA_SUCCESS;
		REAL(cuCtxPopCurrent)(&old);
	}
	pthread_mutex_unlock(&context_lock);
	return idle;
}

void drain_after_fork(void)
{
	pthread_mutex_init(&context_lock, NULL);
	pthread_mutex_init(&capture_lock, NULL);
	atomic_store(&captures, 0);
	n_contexts = 0;
}
