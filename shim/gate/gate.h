/* gate.h: the gate, where calls that submit work wait while the process has no lease.
 *
 * Threads of the program enter and leave. Only the client thread opens, bounds and shuts it.
 */
#ifndef GPU_LEASE_GATE_H
#define GPU_LEASE_GATE_H

#include "base/compiler.h"
#include "gate/gate_step.h"
#include "gate/pace.h"
#include "gate/slots.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum gate_state {
	GATE_CLOSED,
	GATE_OPEN,
	GATE_BOUNDED, /* open, but another job waits: the pace limits the work in flight */
	GATE_SLOW = 4 /* added to them: every thread takes the slow path, gate_enter() */
};

/* Where the program's swapped memory is. */
enum gate_memory {
	GATE_MEMORY_STAYS, /* the process has no swapped memory */
	GATE_MEMORY_HERE,  /* all of it is on its device */
	GATE_MEMORY_AWAY   /* some of it is evicted */
};

extern atomic_int gate_state;  /* enum gate_state; gate_now() reads it */
extern atomic_int gate_memory; /* enum gate_memory; memory/swap sets it */

/* -- threads of the program; they hold no lock --------------------------------- */

/* Enters to submit work to the stream. Waits until the gate lets the call in. An error if the
 * process will have no lease, or the host no memory for the thread's slot. */
CUresult gate_enter(CUstream stream);
/* Enters to use addresses of device memory without submitting work. Waits while swapped memory is
 * away. */
CUresult gate_enter_for_memory(void);
/* Enters to call a function of the driver that may wait for submitted work with the driver's locks
 * held. Needs no lease; waits while work is stopped in mid-kernel. */
CUresult gate_enter_unless_stopped(void);
/* Leaves after one of them has succeeded. */
void gate_leave(void);
/* Waits until the gate is not shut or lets this thread's call in; with `memory`, until no swapped
 * memory is away. */
CUresult gate_wait(bool memory);
/* May this thread take the step that gate_step() has allowed? */
bool gate_may_step(void);

/* -- the client thread ----------------------------------------------------------- */

void gate_open(void);
/* Lets the pace decide who passes an open gate; with NULL all calls pass again. A shut gate stays
 * shut. */
void gate_bound(const struct pace *pace);
/* From its return on no call enters. Those that are inside go on (gate_empty()). */
void gate_shut(void);
/* Allows one call to pass the shut gate, or takes that back unless a call has passed. */
void gate_step(enum gate_step which);
/* Is a step allowed that no call has taken so far? */
bool gate_step_pending(void);
/* Work is about to be stopped in mid-kernel, or goes on. */
void gate_stop(void);
void gate_resume(void);

/* -- the fast path ----------------------------------------------------------------- */

/* The gate's state without GATE_SLOW. */
static inline int gate_now(void)
{
	return atomic_load_explicit(&gate_state, memory_order_acquire) & ~GATE_SLOW;
}

/* Who sees the count sees the thread inside, or that it has left (gate_settled()). */
static inline void gate_count(struct thread_slot *slot)
{
	unsigned long calls = atomic_load_explicit(&slot->calls, memory_order_relaxed);

	atomic_store_explicit(&slot->calls, calls + 1, memory_order_release);
}

/* Enters without waiting. Returns the thread's slot, for gate_return(), or NULL if the caller has
 * to use gate_enter().
 *
 * Why no call passes unnoticed while the gate is being shut: a thread stores GATE_INSIDE and then
 * loads gate_state; the client thread stores GATE_CLOSED and then loads every slot's place. Both
 * loads could miss the other side's store only if both stores were delayed past the other side's
 * load. The client thread's membarrier puts a full barrier into every running thread of the process
 * between its own store and its loads. If a thread's store came before that barrier, the client
 * thread sees the thread inside and waits for it; if a thread's load comes after the barrier, the
 * thread sees the gate shut. Without membarrier both sides need a fence: the gate then has
 * GATE_SLOW for good, since the slow path has one. It has GATE_SLOW while a capture exists too,
 * since only the slow path asks whether a call is captured.
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

/* Leaves after gate_pass(). */
static inline void gate_return(struct thread_slot *slot)
{
	atomic_store_explicit(&slot->place, GATE_OUTSIDE, memory_order_release);
}

#endif
