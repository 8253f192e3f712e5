/* contexts.c: the contexts of the process, each of which a drain must wait for. */
#include "memory/memory.h"

#define MAX_CONTEXTS 128
#define CONTEXT_PART 32 /* of a device, at most, that a context takes */

/* The waypoint is of the client thread alone, and goes with its context. */
static struct entry {
	CUcontext context;
	CUdevice device;
	struct waypoint waypoint;
} contexts[MAX_CONTEXTS];

/* What the last drain saw of each; read without the lock by threads that wait at the gate. */
static _Atomic(CUcontext) busy_contexts[MAX_CONTEXTS];

static atomic_int n_contexts;
static struct lock lock = LOCK(LOCK_CONTEXTS);

/* By device: its primary context, and how often the program has retained it. */
static struct {
	CUcontext context;
	unsigned int retained;
} primaries[MAX_DEVICES];
static struct lock primary_lock = LOCK(LOCK_PRIMARY);

void context_add(CUcontext context, CUdevice device)
{
	bool known = false;

	device_uuid(device); /* from now on its memory is reported */
	client_guard_exit();
	lock_take(&lock);
	for (int i = 0; i < n_contexts; i++)
		known |= contexts[i].context == context;
	if (!known && n_contexts < MAX_CONTEXTS)
		contexts[n_contexts++] = (struct entry){.context = context, .device = device};
	else if (!known)
		complain("more than %d contexts: work of this one is not waited for", MAX_CONTEXTS);
	lock_give(&lock);
}

bool contexts_exist(void)
{
	return atomic_load(&n_contexts) > 0; /* no lock: a forked child asks too */
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
	bool idle = false;

	for (int i = 0; i < atomic_load(&n_contexts) && i < MAX_CONTEXTS; i++)
		idle |= !atomic_load(&busy_contexts[i]);
	return idle;
}

bool contexts_idle(bool (*idle)(CUcontext context, struct waypoint *waypoint), bool all)
{
	bool every = true;
	CUcontext old;

	lock_take(&lock);
	for (int i = 0; i < n_contexts && (every || all) && !atomic_load(&process_ends); i++) {
		bool busy;

		if (REAL(cuCtxPushCurrent_v2)(contexts[i].context))
			continue;
		busy = !idle(contexts[i].context, &contexts[i].waypoint);
		REAL(cuCtxPopCurrent_v2)(&old);
		atomic_store(&busy_contexts[i], busy ? contexts[i].context : NULL);
		every &= !busy;
	}
	lock_give(&lock);
	return every;
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

/* The last entry takes the place of one that goes; so does what is known of it. */
static struct entry take_entry(int i)
{
	struct entry entry = contexts[i];
	int last = n_contexts - 1;

	contexts[i] = contexts[last];
	atomic_store(&busy_contexts[i], atomic_load(&busy_contexts[last]));
	atomic_store(&busy_contexts[last], NULL);
	n_contexts = last;
	return entry;
}

/* Between begin and end the driver destroys the context; nobody uses it then. The entry
 * is empty where it is not known. */
static struct entry remove_begin(CUcontext context)
{
	struct entry entry = {0};

	lock_take(&lock);
	bound_forget(context);
	memory_context_ends(context);
	for (int i = 0; i < n_contexts && !entry.context; i++)
		if (contexts[i].context == context)
			entry = take_entry(i);
	return entry;
}

/* gone: the driver has ended it, and its memory with it. The lock is held until all of
 * that is forgotten: the handle of the next context may be the same. */
static void remove_end(CUcontext context, const struct entry *entry, bool gone)
{
	if (gone && context) {
		captures_forget(context);
		memory_context_gone(context);
	} else if (entry->context) {
		contexts[n_contexts++] = *entry;
	}
	lock_give(&lock);
}

void contexts_after_fork(void)
{
	lock_after_fork(&lock);
	lock_after_fork(&primary_lock);
	for (int i = 0; i < n_contexts; i++)
		atomic_store(&busy_contexts[i], NULL);
	for (int d = 0; d < MAX_DEVICES; d++)
		primaries[d].retained = 0;
	n_contexts = 0;
}

/* -- the driver's functions -------------------------------------------------- */

/* A context takes memory of the device, half a GiB on a large one: how much is not known
 * before. */
static uint64_t context_bytes(CUdevice device)
{
	size_t total = 0;

	return REAL(cuDeviceTotalMem_v2)(&total, device) ? 0 : total / CONTEXT_PART;
}

static CUresult retain(CUcontext *context, CUdevice device)
{
	CUresult result;

	NEED(cuDevicePrimaryCtxRetain);
	lock_take(&primary_lock);
	result = real(context, device);
	if (!result && device < MAX_DEVICES) {
		primaries[device].context = *context;
		primaries[device].retained++;
	}
	lock_give(&primary_lock);
	return result;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	TRY_WITH_ROOM(device, context_bytes(device), retain(context, device));
	context_add(*context, device);
	return CUDA_SUCCESS;
}

/* The last hold on it is let go, or it is reset: it is gone until it is retained again. */
static CUresult end_primary(CUresult (*real)(CUdevice), CUdevice device)
{
	CUcontext context = primaries[device].context;
	struct entry entry = remove_begin(context);
	CUresult result = real(device);
	unsigned int flags;
	int active = 1;

	REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active);
	remove_end(context, &entry, !active);
	if (!active)
		primaries[device].retained = 0;
	return result;
}

static CUresult let_primary_go(CUresult (*real)(CUdevice), CUdevice device, bool reset)
{
	CUresult result;

	if (device < 0 || device >= MAX_DEVICES || !primaries[device].retained)
		return real(device);
	if (reset || primaries[device].retained == 1)
		return end_primary(real, device);
	result = real(device);
	if (!result)
		primaries[device].retained--;
	return result;
}

#define END_PRIMARY(name, reset)                                                                   \
	EXPORT CUresult name(CUdevice device)                                                      \
	{                                                                                          \
		CUresult result;                                                                   \
		NEED(name);                                                                        \
		lock_take(&primary_lock);                                                          \
		result = let_primary_go(real, device, reset);                                      \
		lock_give(&primary_lock);                                                          \
		return result;                                                                     \
	}

END_PRIMARY(cuDevicePrimaryCtxRelease, false)
END_PRIMARY(cuDevicePrimaryCtxRelease_v2, false)
END_PRIMARY(cuDevicePrimaryCtxReset, true)
END_PRIMARY(cuDevicePrimaryCtxReset_v2, true)

#define CREATE(name, parameters, arguments)                                                        \
	EXPORT CUresult name parameters                                                            \
	{                                                                                          \
		NEED(name);                                                                        \
		TRY_WITH_ROOM(device, context_bytes(device), real arguments);                      \
		context_add(*context, device);                                                     \
		return CUDA_SUCCESS;                                                               \
	}

CREATE(cuCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device),
       (context, flags, device))
CREATE(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device),
       (context, flags, device))
CREATE(cuCtxCreate_v3,
       (CUcontext * context, CUexecAffinityParam *params, int n, unsigned int flags,
        CUdevice device),
       (context, params, n, flags, device))
CREATE(cuCtxCreate_v4,
       (CUcontext * context, CUctxCreateParams *params, unsigned int flags, CUdevice device),
       (context, params, flags, device))

static CUresult end_context(CUresult (*real)(CUcontext), CUcontext context)
{
	struct entry entry = remove_begin(context);
	CUresult result = real(context);

	remove_end(context, &entry, !result);
	return result;
}

#define DESTROY(name)                                                                              \
	EXPORT CUresult name(CUcontext context)                                                    \
	{                                                                                          \
		NEED(name);                                                                        \
		return end_context(real, context);                                                 \
	}

DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)

static CUdevice device_of_context(CUcontext context)
{
	CUdevice device = -1;
	CUcontext old;

	if (!REAL(cuCtxPushCurrent_v2)(context)) {
		REAL(cuCtxGetDevice)(&device);
		REAL(cuCtxPopCurrent_v2)(&old);
	}
	return device;
}

/* What is mapped has to be told device by device. To disable it again says nothing of
 * mappings: cuCtxDisablePeerAccess is the driver's alone. */
EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	CUdevice device;

	NEED(cuCtxEnablePeerAccess);
	TRY(real(peer, flags));
	if (!REAL(cuCtxGetDevice)(&device))
		swap_peer(device_of_context(peer), device);
	return CUDA_SUCCESS;
}

/* Attached contexts live until they are detached as often. */
static atomic_int attached;

EXPORT CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
	NEED(cuCtxAttach);
	TRY(real(context, flags));
	atomic_fetch_add(&attached, 1);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDetach(CUcontext context)
{
	NEED(cuCtxDetach);
	if (atomic_load(&attached) > 0) {
		atomic_fetch_sub(&attached, 1);
		return real(context);
	}
	return end_context(real, context);
}

/* Work on a green context is not part of its primary context's. */
EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc description, CUdevice device,
                                 unsigned int flags)
{
	CUcontext context;

	NEED(cuGreenCtxCreate);
	TRY(real(green, description, device, flags));
	if (!REAL(cuCtxFromGreenCtx)(&context, *green))
		context_add(context, device);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
	CUcontext context = NULL;
	struct entry entry;
	CUresult result;

	NEED(cuGreenCtxDestroy);
	REAL(cuCtxFromGreenCtx)(&context, green);
	entry = remove_begin(context);
	result = real(green);
	remove_end(context, &entry, !result);
	return result;
}
