/* slots.c: the slots of threads. They are never freed, so the client thread can walk the list
 * without a lock. */
#include "gate/slots.h"

#include "base/fork.h"
#include "work/contexts.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

__thread struct thread_slot *my_slot __attribute__((tls_model("initial-exec")));

static _Atomic(struct thread_slot *) slots;
static atomic_ulong resumes;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t slot_key;
static bool has_key; /* else the program has all keys, and slots of ended threads stay used */

static void thread_ends(void *value)
{
	struct thread_slot *slot = value;

	my_slot = NULL;
	slot->depth = slot->credit = 0;
	atomic_store(&slot->place, GATE_OUTSIDE);
	atomic_store(&slot->used, false);
}

static void make_key(void)
{
	has_key = !pthread_key_create(&slot_key, thread_ends);
}

/* A slot that an ended thread has left, or NULL. */
static struct thread_slot *take_unused(void)
{
	struct thread_slot *slot;

	for (slot = atomic_load(&slots); slot; slot = slot->next) {
		bool unused = false;

		if (atomic_compare_exchange_strong(&slot->used, &unused, true))
			break;
	}
	return slot;
}

static struct thread_slot *make_slot(void)
{
	struct thread_slot *slot = aligned_alloc(CACHE_LINE, sizeof(*slot));

	if (!slot)
		return NULL;
	*slot = (struct thread_slot){0};
	atomic_store(&slot->used, true);
	slot->next = atomic_load(&slots);
	while (!atomic_compare_exchange_weak(&slots, &slot->next, slot))
		;
	return slot;
}

static struct thread_slot *new_slot(void)
{
	struct thread_slot *slot;
	int saved_errno = errno;

	pthread_once(&once, make_key);
	slot = take_unused();
	if (!slot)
		slot = make_slot();
	if (slot && has_key)
		pthread_setspecific(slot_key, slot);
	my_slot = slot;
	errno = saved_errno;
	return slot;
}

struct thread_slot *slot_of_thread(void)
{
	return my_slot ? my_slot : new_slot();
}

static bool is_at(struct thread_slot *slot, enum gate_place place)
{
	return atomic_load_explicit(&slot->place, memory_order_acquire) == (int)place;
}

static bool none_in(enum gate_place place)
{
	for (struct thread_slot *slot = atomic_load(&slots); slot; slot = slot->next)
		if (is_at(slot, place))
			return false;
	return true;
}

bool gate_empty(void)
{
	return none_in(GATE_INSIDE);
}

bool gate_none_held(void)
{
	return none_in(GATE_HELD);
}

void slot_count_captured(struct thread_slot *slot)
{
	unsigned long captured = atomic_load_explicit(&slot->captured, memory_order_relaxed);

	atomic_store_explicit(&slot->captured, captured + 1, memory_order_relaxed);
}

void slots_note_resume(void)
{
	atomic_fetch_add(&resumes, 1);
}

unsigned long gate_calls(void)
{
	unsigned long calls = atomic_load(&resumes);

	for (struct thread_slot *slot = atomic_load(&slots); slot; slot = slot->next) {
		calls += atomic_load_explicit(&slot->calls, memory_order_relaxed) +
		         atomic_load_explicit(&slot->captured, memory_order_relaxed);
		/* A thread that is inside counts as one more call. */
		calls += is_at(slot, GATE_INSIDE);
	}
	return calls;
}

unsigned long gate_submitted(void)
{
	unsigned long calls = atomic_load(&resumes);

	for (struct thread_slot *slot = atomic_load(&slots); slot; slot = slot->next)
		calls += atomic_load_explicit(&slot->calls, memory_order_acquire);
	return calls;
}

unsigned long gate_graphs(void)
{
	unsigned long graphs = 0;

	for (struct thread_slot *slot = atomic_load(&slots); slot; slot = slot->next)
		graphs += atomic_load_explicit(&slot->graphs, memory_order_relaxed);
	return graphs;
}

/* Whoever enters after the count is not in it. */
unsigned long gate_settled(void)
{
	unsigned long submitted = gate_submitted();

	return gate_empty() ? submitted : UNSETTLED;
}

/* In the child only the forking thread exists. */
static void in_child(void)
{
	for (struct thread_slot *slot = atomic_load(&slots); slot; slot = slot->next) {
		atomic_store(&slot->place, GATE_OUTSIDE);
		slot->depth = 0;
		if (slot != my_slot)
			atomic_store(&slot->used, false);
	}
}
FORK_WATCH(in_child);
