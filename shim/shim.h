/* shim.h: what the files of libgpulease.so know of each other.
 *
 * Everything here runs inside a stranger's program: no exit, no output but on a
 * real fault or with GPU_LEASE_DEBUG, errno kept, signals left alone.
 */
#ifndef GPU_LEASE_SHIM_H
#define GPU_LEASE_SHIM_H

#include "base/locks.h"
#include "base/wire.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define likely(x) __builtin_expect(!!(x), 1)
/* The stream that a function of the _ptds and _ptsz kind means. */
#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

/* In a function that stands for one of the driver's: */
#define TRY(expression)                                                                            \
	do {                                                                                       \
		CUresult try_result = (expression);                                                \
		if (try_result)                                                                    \
			return try_result;                                                         \
	} while (0)
#define DRIVER(name) ((__typeof__(&name))real_hook(HOOK_##name))
#define NEED(name)                                                                                 \
	__typeof__(&name) real = DRIVER(name);                                                     \
	if (!real)                                                                                 \
	return CUDA_ERROR_NOT_FOUND

/* Of the monotonic clock. */
static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* usleep() would be a moment at which a thread may be cancelled, with half of its work done. */
static inline void pause_us(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};

	syscall(SYS_nanosleep, &t, NULL);
}

/* One number for every hooked function. */
enum hook {
#define HOOK(name) HOOK_##name,
#include "driver/hooks.def"
	N_HOOKS
};

/* lookup.c: the driver's functions. */
struct hooked {
	const char *name;
	void *wrapper;
	_Atomic(void *) real;
};
extern struct hooked hooks[N_HOOKS];
void *find_hook(enum hook hook);
void *real_symbol(const char *name);
void *wrapper_of(void *real); /* our function in place of the driver's, or the same pointer */

/* The function behind a hook, NULL if the driver has none. */
static inline void *real_hook(enum hook hook)
{
	void *real = atomic_load_explicit(&hooks[hook].real, memory_order_acquire);

	return likely(real != NULL) ? real : find_hook(hook);
}

/* The driver's function of a name in cuda.h, looked up once. cuda.h is read
 * with __CUDA_API_VERSION_INTERNAL: every name means itself, no macro renames it. */
#define REAL(name)                                                                                 \
	({                                                                                         \
		static _Atomic(void *) found;                                                      \
		if (!atomic_load_explicit(&found, memory_order_acquire))                           \
			atomic_store_explicit(&found, real_symbol(#name), memory_order_release);   \
		(__typeof__(&name))atomic_load_explicit(&found, memory_order_acquire);             \
	})

/* gate.c */
enum gate_state {
	GATE_CLOSED,
	GATE_OPEN,
	GATE_BOUNDED,   /* open, but somebody waits: only so much work may be in flight */
	GATE_FENCED = 4 /* with either, on a kernel without membarrier: who enters needs a fence */
};

#define CACHE_LINE 64 /* no two threads write to one */

/* Where a thread is. */
enum gate_place {
	GATE_OUTSIDE,
	GATE_INSIDE, /* between the check of the gate and the driver's return */
	GATE_BESIDE  /* in a call that waits, or that nobody need wait for */
};

enum gate_memory {
	GATE_MEMORY_STAYS, /* there is none */
	GATE_MEMORY_HERE,
	GATE_MEMORY_AWAY
};

struct thread_slot {
	_Alignas(CACHE_LINE) atomic_int place; /* only its thread writes it, and `calls` */
	int depth;          /* driver calls inside the driver's call: they pass */
	atomic_ulong calls; /* submissions so far */
	int credit;         /* calls that may still pass a bounded gate */
	atomic_bool used;   /* a thread has this slot */
	struct thread_slot *next;
};

extern atomic_int gate_state;
/* Swapped memory of the program; what looks at it waits while it is away. */
extern atomic_int gate_memory;
extern __thread struct thread_slot *my_slot __attribute__((tls_model("initial-exec")));
CUresult gate_enter(CUstream stream); /* to submit; may wait */
CUresult gate_look(void);             /* to look at memory, submitting nothing; may wait */
void gate_leave(void);                /* after either */
void gate_open(void);
void gate_bound(bool bounded); /* an open gate; a closed one stays closed */
void gate_shut(void);          /* nobody enters any more */
bool gate_empty(void);         /* a shut gate: nobody is inside any more */
void gate_step(bool allowed);  /* one call may pass a shut gate; or not, if it has not yet */
bool gate_step_pending(void);
bool gate_may_step(void); /* this thread */
unsigned long gate_calls(void);
unsigned long gate_submitted(void); /* exact while the gate is shut and empty */
void gate_barrier(void);
void gate_after_fork(void);
extern bool gate_needs_fence; /* the kernel has no membarrier */

/* Less GATE_FENCED. */
static inline int gate_now(void)
{
	return atomic_load_explicit(&gate_state, memory_order_acquire) & ~GATE_FENCED;
}

static inline void gate_count(struct thread_slot *slot)
{
	unsigned long calls = atomic_load_explicit(&slot->calls, memory_order_relaxed);

	atomic_store_explicit(&slot->calls, calls + 1, memory_order_relaxed);
}

/*
 * Why no submission slips through a close. A thread stores GATE_INSIDE, then
 * loads gate_state; the closer stores GATE_CLOSED, then loads every place.
 * Were both loads to miss the other's store, each store would have to be
 * delayed past the other side's load. The closer's membarrier puts a full
 * barrier into every running thread of the process between these two moments:
 * a thread whose store of its place came before it is seen by the closer, which
 * waits for it; a thread whose load of the gate comes after it sees it closed.
 * Without membarrier a fence stands on both sides: the open gate says so with
 * GATE_FENCED, and every thread takes the slow way, gate_enter().
 *
 * The fast way in: a slot for gate_return(), or NULL (call gate_enter()).
 */
static inline struct thread_slot *gate_pass(void)
{
	struct thread_slot *slot = my_slot;
	int state;

	if (!likely(slot != NULL) ||
	    !likely(atomic_load_explicit(&slot->place, memory_order_relaxed) == GATE_OUTSIDE))
		return NULL;
	atomic_store_explicit(&slot->place, GATE_INSIDE, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	state = atomic_load_explicit(&gate_state, memory_order_acquire);
	if (likely(state == GATE_OPEN) ||
	    (state == GATE_BOUNDED && slot->credit > 0 && slot->credit--)) {
		gate_count(slot);
		return slot;
	}
	atomic_store_explicit(&slot->place, GATE_OUTSIDE, memory_order_release);
	return NULL;
}

static inline void gate_return(struct thread_slot *slot)
{
	atomic_store_explicit(&slot->place, GATE_OUTSIDE, memory_order_release);
}

/* bound.c: how much work may be in flight while somebody waits. */
void bound_begin(uint64_t ns); /* somebody waits: so much work at most */
int bound_draw(void); /* waits for room; calls that may pass now, 0: look at the gate again */
void bound_forget(CUcontext context);
void bound_after_fork(void);

/* client.c: the thread that talks to the daemon; the lease that it has is lease.c's. */
/* Wait until the gate is open or lets a call in, or refused; memory: until it is not away. */
CUresult client_need_lease(bool memory);
CUresult client_need_welcome(void);
bool client_welcomed_within(int ms); /* for who can do without */
void client_memory_changed(void);
void client_wake(void); /* there is something for the client thread to look at */
#define NO_LIMIT UINT64_MAX
uint64_t
client_limit(const uint8_t uuid[16]); /* bytes the job may have; NO_LIMIT: not its device */
uint64_t client_others(const uint8_t uuid[16]); /* bytes its other processes have */
bool client_oversub(void);
bool client_swaps(void);      /* what is allocated shall be swapped, not managed */
void client_guard_exit(void); /* the driver is in use: it may end with the process */
extern atomic_bool process_ends;

/* devices.c */
#define MAX_DEVICES 64
const uint8_t *device_uuid(CUdevice device);
bool device_known(CUdevice device);         /* it has been seen: it is reported */
CUdevice device_of(const uint8_t uuid[16]); /* -1: not seen yet */
void devices_after_fork(void);

/* memory/ */
uint64_t memory_used(CUdevice device);
uint32_t memory_report(struct gl_device out[GL_MAX_DEVICES]);
void memory_context_ends(CUcontext context); /* it is still there */
void memory_context_gone(CUcontext context);
void memory_after_fork(void);
void limit_after_fork(void);
void ordered_after_fork(void);
void vmm_after_fork(void);
void pools_after_fork(void);

void managed_after_fork(void);
void swap_after_fork(void);
bool swap_reach(void); /* peers.c: what the driver has refused may succeed now */

/* contexts.c */
void context_add(CUcontext context, CUdevice device);
bool contexts_exist(void);
bool context_busy(CUcontext context); /* when last looked at while draining */
bool contexts_some_idle(void);
/* Call `work` with a context of the device current, `preferred` if it is still
 * there; no context is destroyed meanwhile. False: there is none. */
bool contexts_with(CUdevice device, CUcontext preferred,
                   void (*work)(CUcontext context, void *argument), void *argument);
/* Where the work of a context stood: an event, and whether it has been recorded and not passed. */
struct waypoint {
	CUevent event;
	bool pending;
};
/* Are they idle, says `idle` of each? No context is destroyed meanwhile, and each
 * is current for its call. all: ask every one, to know which are busy. */
bool contexts_idle(bool (*idle)(CUcontext context, struct waypoint *waypoint), bool all);
void contexts_after_fork(void);

/* captures.c */
bool stream_captures(CUstream stream);
bool captures_exist(void);
/* This thread's capture mode: what the driver's own calls may do beside another thread's
 * capture, ours may too. Returns what it was. */
CUstreamCaptureMode captures_mode(CUstreamCaptureMode mode);
bool captures_hold_off(void); /* true: there is none, and none begins until captures_let() */
void captures_let(void);
void captures_forget(CUcontext context); /* it is gone, with its streams */
void captures_after_fork(void);

/* drain.c */
bool drained(void); /* the same by whatever means the driver has; sees which contexts are busy */
bool device_idle(void); /* has everything finished that was submitted before? */
void drain_thread_starts(void);

/* debug.c */
void debug_prepare(void); /* once, at the start: is there to be any? */
void debug(const char *format, ...) __attribute__((format(printf, 1, 2)));
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
