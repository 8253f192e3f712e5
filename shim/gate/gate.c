/* gate.c: the gate's slow path: entering, waiting, opening and shutting. */
#include "gate/gate.h"

#include "base/clock.h"
#include "base/fork.h"
#include "driver/lookup.h"
#include "gate/barrier.h"
#include "gate/waiting.h"
#include "work/captures.h"
#include "work/contexts.h"

#include <errno.h>
#include <pthread.h>

atomic_int gate_state;
atomic_int gate_memory;
static atomic_bool stopped;                   /* work is stopped in mid-kernel */
static atomic_int step;                       /* enum gate_step */
static _Atomic(const struct pace *) pace_now; /* decides who passes a bounded gate */

/* If the thread is already inside a call of the driver (which may call exported functions itself,
 * or callbacks), the call passes: counts it, until gate_leave(), and returns true. */
static bool enter_nested(struct thread_slot *slot)
{
	if (atomic_load_explicit(&slot->place, memory_order_relaxed) == GATE_OUTSIDE)
		return false;
	slot->depth++;
	return true;
}

/* Publishes where the thread is. Only after this may it read the gate's state (gate.h says why),
 * whether memory is away, or whether work is stopped. */
static void go_to(struct thread_slot *slot, enum gate_place place)
{
	atomic_store_explicit(&slot->place, place, memory_order_relaxed);
	if (gate_needs_fence)
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
}

static void go_inside(struct thread_slot *slot)
{
	go_to(slot, GATE_INSIDE);
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
	return atomic_load(&step) != GATE_STEP_NONE;
}

/* A drain may depend on a call that waits here: a collective's kernel on one device spins until its
 * counterpart on another device starts. A call for a context that is busy itself helps more rarely.
 * While a capture exists nobody knows which contexts are busy, and the thread that will end the
 * capture may be one of those that wait. */
bool gate_may_step(void)
{
	CUcontext context;

	switch ((enum gate_step)atomic_load(&step)) {
	case GATE_STEP_NONE:
		return false;
	case GATE_STEP_ANY:
		return true;
	case GATE_STEP_IDLE:
		break;
	}
	return captures_exist() || (!REAL(cuCtxGetCurrent)(&context) && !context_busy(context));
}

static bool take_step(void)
{
	return gate_may_step() && atomic_exchange(&step, GATE_STEP_NONE) != GATE_STEP_NONE;
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

/* Waits outside of the gate: a handler of a signal may leave the wait for good by longjmp(), and
 * calls that the handler itself makes, or the thread afterwards, are calls like others. */
static CUresult wait_outside(struct thread_slot *slot, bool memory)
{
	CUresult result;

	gate_return(slot);
	result = gate_wait(memory);
	go_beside(slot);
	return result;
}

/* Waits beside the gate, or held, or inside, as the function that waits says. The thread is not
 * cancelled meanwhile. */
static CUresult wait_by(CUresult (*wait)(struct thread_slot *slot, CUstream stream),
                        struct thread_slot *slot, CUstream stream)
{
	int saved_errno = errno, cancel;
	CUresult result;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	result = wait(slot, stream);
	pthread_setcancelstate(cancel, &cancel);
	if (result)
		gate_return(slot);
	errno = saved_errno;
	return result;
}

static CUresult wait_for_memory(struct thread_slot *slot, CUstream none)
{
	CUresult result = CUDA_SUCCESS;

	(void)none;
	while (!result && !enter_if_memory_here(slot))
		result = wait_outside(slot, true);
	return result;
}

CUresult gate_enter_for_memory(void)
{
	struct thread_slot *slot = slot_of_thread();

	if (!slot)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (enter_nested(slot))
		return CUDA_SUCCESS;
	go_beside(slot);
	return enter_if_memory_here(slot) ? CUDA_SUCCESS : wait_by(wait_for_memory, slot, NULL);
}

static bool goes_on(void)
{
	return !atomic_load(&stopped);
}

static CUresult wait_while_stopped(struct thread_slot *slot, CUstream none)
{
	CUresult result = CUDA_SUCCESS;

	(void)none;
	while (!result && !goes_on()) {
		gate_return(slot);
		result = wait_until(WAIT_GATE, goes_on);
		go_to(slot, GATE_HELD);
	}
	return result;
}

CUresult gate_enter_unless_stopped(void)
{
	struct thread_slot *slot = slot_of_thread();

	if (!slot)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (enter_nested(slot))
		return CUDA_SUCCESS;
	go_to(slot, GATE_HELD);
	return goes_on() ? CUDA_SUCCESS : wait_by(wait_while_stopped, slot, NULL);
}

/* A call that is captured executes nothing, so that it uses no credit. */
static void count_pass(struct thread_slot *slot, CUstream stream)
{
	if (stream_captures(stream)) {
		slot_count_captured(slot);
		return;
	}
	slot->credit -= slot->credit > 0;
	gate_count(slot);
}

/* How many calls the thread may make at the bounded gate; 0 if the gate is not bounded any more. */
static int draw_credit(struct thread_slot *slot)
{
	long us = 0;
	int drawn = 0;

	while (gate_now() == GATE_BOUNDED) {
		drawn = atomic_load(&pace_now)->draw(&us);
		if (drawn)
			break;
		gate_return(slot);
		pause_us(us);
		go_beside(slot);
	}
	return drawn;
}

/* Waits until the thread may submit. It is inside when this is called and when it succeeds. A call
 * whose stream captures submits nothing that executes, so it needs no lease: it passes beside the
 * gate once no swapped memory is away. */
static CUresult wait_to_pass(struct thread_slot *slot, CUstream stream)
{
	CUresult result;

	while (!may_pass(slot) && !take_step()) {
		bool captured = stream_captures(stream);

		go_beside(slot);
		if (captured && enter_if_memory_here(slot))
			return CUDA_SUCCESS;
		result = CUDA_SUCCESS;
		if (gate_now() == GATE_BOUNDED)
			slot->credit = draw_credit(slot);
		else
			result = wait_outside(slot, captured);
		if (result)
			return result;
		go_inside(slot);
	}
	count_pass(slot, stream);
	return CUDA_SUCCESS;
}

CUresult gate_enter(CUstream stream)
{
	struct thread_slot *slot = slot_of_thread();

	if (!slot)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (enter_nested(slot))
		return CUDA_SUCCESS;
	go_inside(slot);
	if (!may_pass(slot))
		return wait_by(wait_to_pass, slot, stream);
	count_pass(slot, stream);
	return CUDA_SUCCESS;
}

/* From any state but this one. GATE_SLOW stays: captures begin and end while the gate changes. */
static void become(enum gate_state state, int but)
{
	int now = atomic_load(&gate_state), next;

	gate_barrier_prepare();
	do {
		if ((now & ~GATE_SLOW) == but)
			return;
		next = (int)state | (now & GATE_SLOW) | (gate_needs_fence ? GATE_SLOW : 0);
	} while (!atomic_compare_exchange_weak(&gate_state, &now, next));
}

#define NONE (-1)

void gate_open(void)
{
	become(GATE_OPEN, NONE);
}

void gate_bound(const struct pace *pace)
{
	if (pace)
		atomic_store(&pace_now, pace);
	become(pace ? GATE_BOUNDED : GATE_OPEN, GATE_CLOSED);
}

static void captures_changed(bool exist)
{
	if (exist)
		atomic_fetch_or(&gate_state, GATE_SLOW);
	else if (!gate_needs_fence)
		atomic_fetch_and(&gate_state, ~GATE_SLOW);
}
WATCH(capture_watches, captures_changed);

void gate_step(enum gate_step which)
{
	/* An exchange, not a store: if a thread has taken the step, it is seen to be inside. */
	atomic_exchange(&step, which);
}

void gate_shut(void)
{
	become(GATE_CLOSED, NONE);
	gate_barrier();
}

void gate_stop(void)
{
	atomic_store(&stopped, true);
	gate_barrier();
}

/* What goes on may change memory, as if it had been submitted now. */
void gate_resume(void)
{
	if (!atomic_exchange(&stopped, false))
		return;
	slots_note_resume();
	waiting_wake_all();
}

/* The child has no lease. */
static void in_child(void)
{
	atomic_store(&stopped, false);
	atomic_store(&gate_state, GATE_CLOSED);
	atomic_store(&step, GATE_STEP_NONE);
	atomic_store(&gate_memory, GATE_MEMORY_STAYS);
}
FORK_WATCH(in_child);
