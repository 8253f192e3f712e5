/* gate.h: where calls wait that submit work while the process has no lease. */
#ifndef GPU_LEASE_GATE_H
#define GPU_LEASE_GATE_H

#include "base/compiler.h"
#include "gate/pace.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

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
	GATE_BESIDE  /* in a call that waits, or that need not be waited for */
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
/* Where the program's swapped memory is; calls that use its addresses wait while it is away. */
extern atomic_int gate_memory;
extern __thread struct thread_slot *my_slot __attribute__((tls_model("initial-exec")));
CUresult gate_enter(CUstream stream); /* to submit; may wait */
CUresult gate_enter_for_memory(void); /* uses addresses, submits nothing; may wait */
void gate_leave(void);                /* after either */
CUresult
gate_wait(bool memory); /* until it is open or lets a call in; memory: until that is not away */
void gate_open(void);
/* An open gate: the pace says who passes, or NULL: all do. A closed one stays closed. */
void gate_bound(const struct pace *pace);
void gate_shut(void);         /* nobody enters any more */
bool gate_empty(void);        /* a shut gate: nobody is inside any more */
void gate_step(bool allowed); /* one call may pass a shut gate; or not, if it has not yet */
bool gate_step_pending(void);
bool gate_may_step(void); /* this thread */
unsigned long gate_calls(void);
unsigned long gate_submitted(void); /* exact while the gate is shut and empty */
void gate_barrier(void);
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

#endif
