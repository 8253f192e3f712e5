/* contexts.c: the contexts of the process, each of which a drain must wait for. */
#include "memory.h"

#include <pthread.h>

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
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void context_add(CUcontext context, CUdevice device)
{
	bool known = false;

	device_uuid(device); /* from now on its memory is reported */
	pthread_mutex_lock(&lock);
	for (int i = 0; i < n_contexts; i++)
		known |= contexts[i].context == context;
	if (!known && n_contexts < MAX_CONTEXTS)
		contexts[n_contexts++] = (struct entry){.context = context, .device = device};
	else if (!known)
		complain("more than %d contexts: work of this one is not waited for", MAX_CONTEXTS);
	pthread_mutex_unlock(&lock);
}

CUcontext context_of(CUdevice device)
{
	CUcontext found = NULL;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < n_contexts && !found; i++)
		if (contexts[i].device == device)
			found = contexts[i].context;
	pthread_mutex_unlock(&lock);
	return found;
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

	pthread_mutex_lock(&lock);
	for (int i = 0; i < n_contexts && (every || all) && !atomic_load(&process_ends); i++) {
		bool busy;

		if (REAL(cuCtxPushCurrent_v2)(contexts[i].context))
			continue;
		busy = !idle(contexts[i].context, &contexts[i].waypoint);
		REAL(cuCtxPopCurrent_v2)(&old);
		atomic_store(&busy_contexts[i], busy ? contexts[i].context : NULL);
		every &= !busy;
	}
	pthread_mutex_unlock(&lock);
	return every;
}

bool contexts_with(CUdevice device, CUcontext preferred,
                   void (*work)(CUcontext context, void *argument), void *argument)
{
	CUcontext chosen = NULL, old;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < n_contexts && !atomic_load(&process_ends); i++)
		if (contexts[i].device == device && (!chosen || contexts[i].context == preferred))
			chosen = contexts[i].context;
	if (chosen && REAL(cuCtxPushCurrent_v2)(chosen))
		chosen = NULL;
	if (chosen) {
		work(chosen, argument);
		REAL(cuCtxPopCurrent_v2)(&old);
	}
	pthread_mutex_unlock(&lock);
	return chosen != NULL;
}

/* Between begin and end the driver destroys the context; nobody uses it then. */
static void remove_begin(CUcontext context)
{
	pthread_mutex_lock(&lock);
	bound_forget(context);
	swap_context_ends(context);
	for (int i = 0; i < n_contexts; i++) {
		if (contexts[i].context == context) {
			contexts[i] = contexts[--n_contexts];
			break;
		}
	}
}

/* gone: the driver has ended it, and its memory with it. */
static void remove_end(CUcontext context, bool gone)
{
	pthread_mutex_unlock(&lock);
	if (gone) {
		ordered_forget(context);
		memory_forget(context);
		swap_context_gone(context);
	}
}

void contexts_after_fork(void)
{
	pthread_mutex_init(&lock, NULL);
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

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	NEED(cuDevicePrimaryCtxRetain);
	TRY_WITH_ROOM(device, context_bytes(device), real(context, device));
	context_add(*context, device);
	return CUDA_SUCCESS;
}

/* A release may be the last; then the context is gone until it is retained again. */
#define END_PRIMARY(name)                                                                          \
	EXPORT CUresult name(CUdevice device)                                                      \
	{                                                                                          \
		CUcontext context = context_of(device);                                            \
		unsigned int flags;                                                                \
		CUresult result;                                                                   \
		int active = 1;                                                                    \
		NEED(name);                                                                        \
		remove_begin(context);                                                             \
		result = real(device);                                                             \
		REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active);                         \
		remove_end(context, context && !active);                                           \
		if (context && active)                                                             \
			context_add(context, device);                                              \
		return result;                                                                     \
	}

END_PRIMARY(cuDevicePrimaryCtxRelease)
END_PRIMARY(cuDevicePrimaryCtxRelease_v2)
END_PRIMARY(cuDevicePrimaryCtxReset)
END_PRIMARY(cuDevicePrimaryCtxReset_v2)

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

#define DESTROY(name)                                                                              \
	EXPORT CUresult name(CUcontext context)                                                    \
	{                                                                                          \
		CUresult result;                                                                   \
		NEED(name);                                                                        \
		remove_begin(context);                                                             \
		result = real(context);                                                            \
		remove_end(context, !result);                                                      \
		return result;                                                                     \
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
	CUresult result;

	NEED(cuCtxDetach);
	if (atomic_load(&attached) > 0) {
		atomic_fetch_sub(&attached, 1);
		return real(context);
	}
	remove_begin(context);
	result = real(context);
	remove_end(context, !result);
	return result;
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
	CUresult result;

	NEED(cuGreenCtxDestroy);
	REAL(cuCtxFromGreenCtx)(&context, green);
	remove_begin(context);
	result = real(green);
	remove_end(context, !result);
	return result;
}
