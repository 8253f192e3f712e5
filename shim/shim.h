/* shim.h: what the files of libgpulease.so know of each other.
 *
 * Everything here runs inside a stranger's program: no exit, no output but on a
 * real fault or with GPU_LEASE_DEBUG, errno kept, signals left alone.
 */
#ifndef GPU_LEASE_SHIM_H
#define GPU_LEASE_SHIM_H

#include "wire.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define likely(x) __builtin_expect(!!(x), 1)

/* One number for every hooked function. */
enum hook {
#define GATED(name, stream, parameters, arguments) HOOK_##name,
#define GATED2(name, suffix, stream, parameters, arguments) HOOK_##name, HOOK_##name##suffix,
#define OWN(name) HOOK_##name,
#define OWN2(name, suffix) HOOK_##name, HOOK_##name##suffix,
#include "hooks.def"
#undef GATED
#undef GATED2
#undef OWN
#undef OWN2
	N_HOOKS
};

/* lookup.c: the driver's functions. */
void *real_hook(enum hook hook); /* the function behind a hook, NULL if the driver has none */
void *real_symbol(const char *name);
void *wrapper_of(void *real); /* our function in place of the driver's, or the same pointer */

/* The driver's function of a name in cuda.h (with its macros applied, so the
 * versioned symbol), looked up once. */
#define REAL(name) REAL_SYMBOL(name)
#define REAL_SYMBOL(name)                                                                          \
	({                                                                                         \
		static _Atomic(void *) found;                                                      \
		if (!atomic_load_explicit(&found, memory_order_acquire))                           \
			atomic_store_explicit(&found, real_symbol(#name), memory_order_release);   \
		(__typeof__(&name))atomic_load_explicit(&found, memory_order_acquire);             \
	})

/* gate.c */
struct thread_slot {
	atomic_int inside;  /* between the check of the gate and the driver's return */
	atomic_ulong calls; /* submissions so far; only its thread writes it */
	int depth;          /* a driver call inside a driver call passes */
	atomic_bool used;   /* a thread has this slot */
	struct thread_slot *next;
};

extern atomic_int gate_is_open;
extern __thread struct thread_slot *my_slot __attribute__((tls_model("initial-exec")));
struct thread_slot *gate_new_slot(void);
CUresult gate_wait(struct thread_slot *slot, CUstream stream); /* the slow way in */
void gate_open(void);
void gate_close(void); /* returns when no thread is inside */
unsigned long gate_calls(void);
void gate_after_fork(void);
extern bool gate_needs_fence;

/*
 * Why no submission slips through a close. A thread stores inside = 1, then
 * loads gate_is_open; the closer stores gate_is_open = 0, then loads inside.
 * Were both loads to miss the other's store, each store would have to be
 * delayed past the other side's load. The closer's membarrier puts a full
 * barrier into every running thread of the process between these two moments:
 * a thread whose store of inside came before it is seen by the closer, which
 * waits for it; a thread whose load of the gate comes after it sees it closed.
 * Without membarrier the fence stands on both sides.
 */
static inline CUresult gate_enter(CUstream stream)
{
	struct thread_slot *slot = my_slot;

	if (!likely(slot != NULL))
		slot = gate_new_slot();
	if (slot->depth++)
		return CUDA_SUCCESS;
	atomic_store_explicit(&slot->inside, 1, memory_order_relaxed);
	if (gate_needs_fence)
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
	if (likely(atomic_load_explicit(&gate_is_open, memory_order_acquire))) {
		atomic_store_explicit(&slot->calls,
		                      atomic_load_explicit(&slot->calls, memory_order_relaxed) + 1,
		                      memory_order_relaxed);
		return CUDA_SUCCESS;
	}
	return gate_wait(slot, stream);
}

static inline void gate_leave(void)
{
	struct thread_slot *slot = my_slot;

	if (!--slot->depth)
		atomic_store_explicit(&slot->inside, 0, memory_order_release);
}

/* client.c: the thread that talks to the daemon. */
CUresult client_need_lease(void); /* wait until the gate is open, or refused */
CUresult client_need_welcome(void);
void client_memory_changed(void);
uint64_t client_limit(const uint8_t uuid[16]);  /* bytes the job may have; 0: not its device */
uint64_t client_others(const uint8_t uuid[16]); /* bytes its other processes have */
bool client_oversub(void);
void client_wake(void);
extern atomic_bool process_ends;

/* memory.c */
#define MAX_DEVICES 64
const uint8_t *device_uuid(CUdevice device);
uint64_t memory_used(CUdevice device);
uint32_t memory_report(struct gl_device out[GL_MAX_DEVICES]);
/* Bring everything back to the devices of the grant; bytes that were asked for. */
uint64_t memory_prefetch(const struct gl_grant *grant);
void memory_after_fork(void);

/* drain.c */
void context_add(CUcontext context, CUdevice device);
void context_remove_begin(CUcontext context);
void context_remove_end(void);
CUcontext context_of(CUdevice device);
void capture_begins(void);
void capture_ended(void);
bool stream_captures(CUstream stream);
void drain(void); /* returns when all that was submitted has finished */
bool device_idle(void);
void drain_thread_starts(void);
void drain_after_fork(void);

/* debug.c */
void debug(const char *format, ...) __attribute__((format(printf, 1, 2)));
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
