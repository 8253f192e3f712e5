/* slots.h: where each thread of the program is: outside of the gate, inside, or beside it. */
#ifndef GPU_LEASE_SLOTS_H
#define GPU_LEASE_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>

#define CACHE_LINE 64 /* bytes; each slot has its own, so that threads do not share one */

/* Where a thread is. */
enum gate_place {
	GATE_OUTSIDE,
	GATE_INSIDE, /* between its check of the gate and the return of the driver's function */
	GATE_BESIDE, /* in a call that waits, or that a drain need not wait for */
	GATE_HELD    /* the same, but a stop in mid-kernel has to wait for it */
};

struct thread_slot {
	_Alignas(CACHE_LINE) atomic_int place; /* only its thread writes it, and the counts */
	int depth;             /* calls made inside a call of the driver: they pass the gate */
	atomic_ulong calls;    /* submissions so far */
	atomic_ulong captured; /* calls that passed and were captured: they execute nothing */
	atomic_ulong graphs;   /* launches of graphs: each has the work of many calls */
	int credit;            /* calls that may still pass a bounded gate */
	atomic_bool used;      /* a thread has this slot */
	struct thread_slot *next;
};

/* The calling thread's slot, or NULL until its first call. */
extern __thread struct thread_slot *my_slot __attribute__((tls_model("initial-exec")));

/* The calling thread's slot; NULL if the host has no memory for one. Preserves errno. */
struct thread_slot *slot_of_thread(void);
/* A call has passed the gate and is captured. */
void slot_count_captured(struct thread_slot *slot);
/* The calling thread has launched a graph. */
static inline void slot_count_graph(void)
{
	unsigned long graphs = atomic_load_explicit(&my_slot->graphs, memory_order_relaxed);

	atomic_store_explicit(&my_slot->graphs, graphs + 1, memory_order_relaxed);
}

/* -- the client thread ----------------------------------------------------------- */

/* Is no thread inside? Meaningful while the gate is shut. */
bool gate_empty(void);
/* Is no thread in a call that may hold the driver's locks until work has finished? Meaningful after
 * gate_stop(). */
bool gate_none_held(void);
/* How many calls have passed the gate, and those that are inside now once more. */
unsigned long gate_calls(void);
/* How many have submitted work that executes; exact while the gate is shut and empty. */
unsigned long gate_submitted(void);
/* The same, if all that have passed have left; else UNSETTLED. */
unsigned long gate_settled(void);
/* How many graphs have been launched. */
unsigned long gate_graphs(void);
/* Stopped work goes on, which both count as a submission: it may change memory. */
void slots_note_resume(void);

#endif
