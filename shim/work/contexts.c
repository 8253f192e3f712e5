/* contexts.c: the list of the process's contexts. A drain waits for the work of each. */
#include "work/contexts.h"

#include "base/debug.h"
#include "base/fork.h"
#include "base/locks.h"
#include "base/process.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "work/captures.h"

#define MAX_CONTEXTS 128

/* Under the lock. The driver destroys the waypoints' events together with the context. */
static struct context_entry contexts[MAX_CONTEXTS];

/* By entry of `contexts`: the context if the last contexts_poll() found it busy, else NULL. Threads
 * that wait at the gate read it without the lock. */
static _Atomic(CUcontext) busy_contexts[MAX_CONTEXTS];

static unsigned long polls; /* under the lock */
static atomic_int n_contexts;
static struct lock lock = LOCK(LOCK_CONTEXTS);

void context_add(CUcontext context, CUdevice device)
{
	bool known = false;

	device_uuid(device); /* from now on memory_report() includes this device */
	process_guard_exit();
	lock_take(&lock);
	for (int i = 0; i < n_contexts; i++)
		known |= contexts[i].context == context;
	if (!known && n_contexts < MAX_CONTEXTS)
		contexts[n_contexts++] =
		    (struct context_entry){.context = context, .device = device};
	else if (!known)
		complain("this process has more than %d CUDA contexts; a handoff does not wait "
		         "for the work of further ones, so destroy those that are not used",
		         MAX_CONTEXTS);
	lock_give(&lock);
}

bool contexts_exist(void)
{
	return atomic_load(&n_contexts) > 0; /* without the lock, since in_child() calls it too */
}

bool contexts_several(void)
{
	return atomic_load(&n_contexts) > 1;
}

unsigned int contexts_busy_on(CUdevice device)
{
	unsigned int n = 0;

	lock_take(&lock);
	for (int i = 0; i < n_contexts; i++)
		n += contexts[i].device == device && atomic_load(&busy_contexts[i]);
	lock_give(&lock);
	return n;
}

bool context_busy(CUcontext context)
{
	for (int i = 0; i < MAX_CONTEXTS; i++)
		if (context && atomic_load(&busy_contexts[i]) == context)
			return true;
	return false;
}

bool contexts_some_idle(void)
{
	bool idle = captures_exist();

	for (int i = 0; i < atomic_load(&n_contexts) && i < MAX_CONTEXTS; i++)
		idle |= !atomic_load(&busy_contexts[i]);
	return idle;
}

bool contexts_poll(bool (*idle)(CUcontext context, struct waypoint *waypoint,
                                unsigned long submitted),
                   unsigned long submitted, bool all)
{
	bool every = true;
	CUcontext old;

	lock_take(&lock);
	polls++;
	for (int i = 0; i < n_contexts && (every || all) && !atomic_load(&process_ends); i++) {
		bool busy;

		if (REAL(cuCtxPushCurrent_v2)(contexts[i].context))
			continue;
		contexts[i].waypoint.now = polls;
		busy = !idle(contexts[i].context, &contexts[i].waypoint, submitted);
		REAL(cuCtxPopCurrent_v2)(&old);
		atomic_store(&busy_contexts[i], busy ? contexts[i].context : NULL);
		every &= !busy;
	}
	lock_give(&lock);
	return every;
}

bool contexts_passed(unsigned long *mark)
{
	bool passed = true;

	lock_take(&lock);
	for (int i = 0; i < n_contexts; i++)
		passed &= contexts[i].waypoint.passed >= *mark;
	if (passed)
		*mark = polls;
	lock_give(&lock);
	return passed;
}

bool contexts_with(CUdevice device, CUcontext preferred,
                   void (*work)(CUcontext context, void *argument), void *argument)
{
	CUcontext chosen = NULL, old;

	lock_take(&lock);
	for (int i = 0; i < n_contexts && !atomic_load(&process_ends); i++)
		if (contexts[i].device == device && (!chosen || contexts[i].context == preferred))
			chosen = contexts[i].context;
	if (chosen && REAL(cuCtxPushCurrent_v2)(chosen))
		chosen = NULL;
	if (chosen) {
		work(chosen, argument);
		REAL(cuCtxPopCurrent_v2)(&old);
	}
	lock_give(&lock);
	return chosen != NULL;
}

void context_run_in(CUcontext context, void (*work)(CUcontext context))
{
	CUstreamCaptureMode mode;
	CUcontext old;

	if (REAL(cuCtxPushCurrent_v2)(context))
		return;
	mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	work(context);
	captures_mode(mode);
	REAL(cuCtxPopCurrent_v2)(&old);
}

/* Removes entry i and fills the gap with the last one. The caller holds the lock. */
static struct context_entry take_entry(int i)
{
	struct context_entry entry = contexts[i];
	int last = n_contexts - 1;

	contexts[i] = contexts[last];
	atomic_store(&busy_contexts[i], atomic_load(&busy_contexts[last]));
	atomic_store(&busy_contexts[last], NULL);
	n_contexts = last;
	return entry;
}

/* The parent had contexts when this process was forked. They cannot be used in the child. */
static bool lost_in_fork;

bool contexts_lost_in_fork(void)
{
	return lost_in_fork;
}

struct context_entry context_remove_begin(CUcontext context)
{
	struct context_entry entry = {0};

	lock_take(&lock);
	for_each_watch(context_watches, watch) if ((*watch)->ends)(*watch)->ends(context);
	for (int i = 0; i < n_contexts && !entry.context; i++)
		if (contexts[i].context == context)
			entry = take_entry(i);
	return entry;
}

/* The lock is held until everything known of the context is forgotten, because the driver may give
 * the next context the same handle. */
void context_remove_end(CUcontext context, const struct context_entry *entry, bool gone)
{
	if (gone && context) {
		captures_forget(context);
		for_each_watch(context_watches, watch) if ((*watch)->gone)(*watch)->gone(context);
	} else if (entry->context) {
		contexts[n_contexts++] = *entry;
	}
	lock_give(&lock);
}

static void in_child(void)
{
	lock_after_fork(&lock);
	lost_in_fork |= contexts_exist();
	for (int i = 0; i < n_contexts; i++)
		atomic_store(&busy_contexts[i], NULL);
	n_contexts = 0;
}
FORK_WATCH(in_child);
