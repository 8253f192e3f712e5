/* gate.c: the gate's slow path: the slots of threads, opening, shutting and waiting. */
#include "gate/gate.h"

#include "base/clock.h"
#include "base/fork.h"
#include "driver/lookup.h"
#include "gate/waiting.h"
#include "work/captures.h"
#include "work/contexts.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

atomic_int gate_state;
__thread struct thread_slot *my_slot __attribute__((tls_model("initial-exec")));
bool gate_needs_fence;
atomic_int gate_memory;
static atomic_bool step;                      /* one call may pass the shut gate */
static _Atomic(const struct pace *) pace_now; /* decides who passes a bounded gate */

static _Atomic(struct thread_slot *) slots;
static pthread_key_t slot_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void thread_ends(void *value)
{
	struct thread_slot *slot = value;

	my_slot = NULL;
	slot->depth = slot->credit = 0;
	atomic_store(&slot->place, GATE_OUTSIDE);
	atomic_store(&slot->used, false);
}

static void set_up(void)
{
	pthread_key_create(&slot_key, thread_ends);
	gate_needs_fence =
	    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
}

/* Gives the calling thread a slot that an ended thread has left, or a new one. Slots are never
 * freed, so the client thread can walk the list without a lock. */
static struct thread_slot *new_slot(void)
{
	struct thread_slot *slot;
	int saved_errno = errno;

	pthread_once(&once, set_up);
	for (slot = atomic_load(&slots); slot; slot = slot->next) {
		bool unused = false;

		if (atomic_compare_exchange_strong(&slot->used, &unused, true))
			break;
	}
	if (!slot) {
		slot = aligned_alloc(CACHE_LINE, sizeof(*slot));
		if (!slot)
			abort(); /* the host is out of memory for a cache line */
		*slot = (struct thread_slot){0};
		atomic_store(&slot->used, true);
		slot->next = atomic_load(&slots);
		while (!atomic_compare_exchange_weak(&slots, &slot->next, slot))
			;
	}
	pthread_setspecific(slot_key, slot);
	my_slot = slot;
	errno = saved_errno;
	return slot;
}

static struct thread_slot *slot_of_thread(void)
{
	return my_slot ? my_slot : new_slot();
}

/* If the thread is already inside a call of the driver (which may call exported functions itself,
 * or callbacks), the call passes: counts it, until gate_leave(), and returns true. */
static bool enter_nested(struct thread_slot *slot)
{
	if (atomic_load_explicit(&slot->place, memory_order_relaxed) == GATE_OUTSIDE)
		return false;
	slot->depth++;
	return true;
}

/* Publishes that the thread is inside. Only after this may it read the gate's state (gate.h says
 * why), or whether memory is away. */
static void go_inside(struct thread_slot *slot)
{
	atomic_store_explicit(&slot->place, GATE_INSIDE, memory_order_relaxed);
	if (gate_needs_fence)
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
}

static void go_beside(struct thread_slot *slot)
{
	atomic_store_explicit(&slot->place, GATE_BESIDE, memory_order_release);
}

void gate_leave(void)
{
	struct thread_slot *slot = my_slot;

	if (slot->depth)
		slot->depth--;
	else
		gate_return(slot);
}

/* May a thread that is inside submit? At an open gate it may, at a bounded one if it has credit. */
static bool may_pass(struct thread_slot *slot)
{
	int state = gate_now();

	return state == GATE_OPEN || (state == GATE_BOUNDED && slot->credit > 0);
}

bool gate_step_pending(void)
{
	return atomic_load(&step);
}

/* A drain may depend on a call that waits here: a collective's kernel on one device spins until its
 * counterpart on another device starts. A call for a context that is busy itself cannot help. */
bool gate_may_step(void)
{
	CUcontext context;

	return gate_step_pending() && !REAL(cuCtxGetCurrent)(&context) && !context_busy(context);
}

static bool take_step(void)
{
	return gate_may_step() && atomic_exchange(&step, false);
}

static bool has_opened(void)
{
	return gate_now() != GATE_CLOSED || gate_may_step();
}

static bool memory_is_back(void)
{
	return atomic_load(&gate_memory) != GATE_MEMORY_AWAY;
}

CUresult gate_wait(bool memory)
{
	if (!contexts_lost_in_fork())
		return wait_until(WAIT_GATE, memory ? memory_is_back : has_opened);
	gate_open(); /* the driver itself refuses all calls of such a process */
	return CUDA_SUCCESS;
}

/* Goes inside, so that no swapped memory is evicted before the thread has left. Returns false if
 * some is away; then the thread is not inside. */
static bool enter_if_memory_here(struct thread_slot *slot)
{
	if (atomic_load(&gate_memory) == GATE_MEMORY_STAYS)
		return true;
	go_inside(slot);
	if (atomic_load(&gate_memory) == GATE_MEMORY_HERE)
		return true;
	go_beside(slot);
	return false;
}

/* The thread is not cancelled while it waits. */
static CUresult wait_for_memory(struct thread_slot *slot)
{
	int saved_errno = errno, cancel;
	CUresult result = CUDA_SUCCESS;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	while (!result && !enter_if_memory_here(slot))
		result = gate_wait(true);
	pthread_setcancelstate(cancel, &cancel);
	if (result)
		gate_return(slot);
	errno = saved_errno;
	return result;
}

CUresult gate_enter_for_memory(void)
{
	struct thread_slot *slot = slot_of_thread();

	if (enter_nested(slot))
		return CUDA_SUCCESS;
	go_beside(slot);
	return enter_if_memory_here(slot) ? CUDA_SUCCESS : wait_for_memory(slot);
}

static void count_pass(struct thread_slot *slot)
{
	slot->credit -= slot->credit > 0;
	gate_count(slot);
}

/* How many calls the thread may make at the bounded gate; 0 if the gate is not bounded any more. */
static int draw_credit(void)
{
	long us = 0;
	int drawn = 0;

	while (gate_now() == GATE_BOUNDED) {
		drawn = atomic_load(&pace_now)->draw(&us);
		if (drawn)
			break;
		pause_us(us);
	}
	return drawn;
}

/* Waits until the thread may submit. It is inside when this is called and when it succeeds. A call
 * whose stream captures submits nothing that executes, so it needs no lease: it passes beside the
 * gate once no swapped memory is away. */
static CUresult try_to_pass(struct thread_slot *slot, CUstream stream)
{
	CUresult result;

	while (!may_pass(slot) && !take_step()) {
		bool captured = stream_captures(stream);

		go_beside(slot);
		if (captured && enter_if_memory_here(slot))
			return CUDA_SUCCESS;
		result = CUDA_SUCCESS;
		if (gate_now() == GATE_BOUNDED)
			slot->credit = draw_credit();
		else
			result = gate_wait(captured);
		if (result)
			return result;
		go_inside(slot);
	}
	count_pass(slot);
	return CUDA_SUCCESS;
}

static CUresult wait_to_pass(struct thread_slot *slot, CUstream stream)
{
	int saved_errno = errno, cancel;
	CUresult result;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	result = try_to_pass(slot, stream);
	pthread_setcancelstate(cancel, &cancel);
	if (result)
		gate_return(slot);
	errno = saved_errno;
	return result;
}

CUresult gate_enter(CUstream stream)
{
	struct thread_slot *slot = slot_of_thread();

	if (enter_nested(slot))
		return CUDA_SUCCESS;
	go_inside(slot);
	if (!may_pass(slot))
		return wait_to_pass(slot, stream);
	count_pass(slot);
	return CUDA_SUCCESS;
}

static int with_fence(int state)
{
	return gate_needs_fence ? state | GATE_FENCED : state;
}

/* set_up() decides whether threads need fences, which must be known before any thread passes. */
void gate_open(void)
{
	pthread_once(&once, set_up);
	atomic_store_explicit(&gate_state, with_fence(GATE_OPEN), memory_order_seq_cst);
}

void gate_bound(const struct pace *pace)
{
	int from = with_fence(pace ? GATE_OPEN : GATE_BOUNDED);

	if (pace)
		atomic_store(&pace_now, pace);
	atomic_compare_exchange_strong(&gate_state, &from,
	                               with_fence(pace ? GATE_BOUNDED : GATE_OPEN));
}

void gate_step(bool allowed)
{
	/* An exchange, not a store: if a thread has taken the step, it is seen to be inside. */
	atomic_exchange(&step, allowed);
}

void gate_barrier(void)
{
	if (gate_needs_fence)
		atomic_thread_fence(memory_order_seq_cst);
	else
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

void gate_shut(void)
{
	pthread_once(&once, set_up);
	atomic_store_explicit(&gate_state, GATE_CLOSED, memory_order_seq_cst);
	gate_barrier();
}

static bool is_inside(struct thread_slot *slot)
{
	return atomic_load_explicit(&slot->place, memory_order_acquire) == GATE_INSIDE;
}

bool gate_empty(void)
{
	for (struct thread_slot *slot = atomic_load(&slots); slot; slot = slot->next)
		if (is_inside(slot))
			return false;
	return true;
}

unsigned long gate_calls(void)
{
	unsigned long calls = 0;

	for (struct thread_slot *slot = atomic_load(&slots); slot; slot = slot->next) {
		calls += atomic_load_explicit(&slot->calls, memory_order_relaxed);
		/* A thread that is inside counts as one more call. */
		calls += is_inside(slot);
	}
	return calls;
}

unsigned long gate_submitted(void)
{
	unsigned long calls = 0;

	for (struct thread_slot *slot = atomic_load(&slots); slot; slot = slot->next)
		calls += atomic_load_explicit(&slot->calls, memory_order_relaxed);
	return calls;
}

/* In the child only the forking thread exists, and it has no lease. */
static void in_child(void)
{
	atomic_store(&gate_state, GATE_CLOSED);
	atomic_store(&step, false);
	atomic_store(&gate_memory, GATE_MEMORY_STAYS);
	for (struct thread_slot *slot = atomic_load(&slots); slot; slot = slot->next) {
		atomic_store(&slot->place, GATE_OUTSIDE);
		slot->depth = 0;
		if (slot != my_slot)
			atomic_store(&slot->used, false);
	}
}
FORK_WATCH(in_child);
