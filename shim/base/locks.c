/* locks.c: takes and releases locks; locks.h has their order. */
#include "base/locks.h"

#include "base/debug.h"
#include "base/fork.h"

#include <stdlib.h>

/* The locks that this thread holds. */
static __thread struct {
	unsigned int n;
	int cancel;                    /* its cancel state before it took the first of them */
	enum lock_rank ranks[N_LOCKS]; /* in the order of taking; libgpulease-checked.so only */
} thread_locks __attribute__((tls_model("initial-exec")));

#ifdef GPU_LEASE_CHECK_LOCKS

static const char *const names[N_LOCKS] = {
#define LOCK_NAME(rank, name) [rank] = (name),
    LOCK_RANKS(LOCK_NAME)
#undef LOCK_NAME
};

static void check_take(enum lock_rank rank)
{
	if (thread_locks.n && thread_locks.ranks[thread_locks.n - 1] >= rank) {
		complain("lock '%s' is taken by a thread that holds '%s'", names[rank],
		         names[thread_locks.ranks[thread_locks.n - 1]]);
		abort();
	}
	thread_locks.ranks[thread_locks.n] = rank;
}

/* Locks may be released in any order. */
static void check_give(enum lock_rank rank)
{
	unsigned int i = thread_locks.n;

	while (i && thread_locks.ranks[i - 1] != rank)
		i--;
	if (!i) {
		complain("lock '%s' is released by a thread that does not hold it", names[rank]);
		abort();
	}
	for (; i < thread_locks.n; i++)
		thread_locks.ranks[i - 1] = thread_locks.ranks[i];
}

/* A thread that waits for a condition may hold no lock besides that of the condition: whoever is to
 * fulfil the condition might need it. */
static void check_wait(enum lock_rank rank)
{
	if (thread_locks.n == 1)
		return;
	complain("a thread waits with lock '%s' and also holds '%s'", names[rank],
	         names[thread_locks.ranks[0]]);
	abort();
}

#else

static inline void check_take(enum lock_rank rank)
{
	(void)rank;
}

static inline void check_give(enum lock_rank rank)
{
	(void)rank;
}

static inline void check_wait(enum lock_rank rank)
{
	(void)rank;
}

#endif

void lock_take(struct lock *lock)
{
	check_take(lock->rank);
	if (!thread_locks.n)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &thread_locks.cancel);
	thread_locks.n++;
	pthread_mutex_lock(&lock->mutex);
}

void lock_give(struct lock *lock)
{
	int ignored;

	pthread_mutex_unlock(&lock->mutex);
	check_give(lock->rank);
	if (!--thread_locks.n)
		pthread_setcancelstate(thread_locks.cancel, &ignored);
}

void lock_wait(struct lock *lock, pthread_cond_t *condition)
{
	check_wait(lock->rank);
	pthread_cond_wait(condition, &lock->mutex);
}

void lock_after_fork(struct lock *lock)
{
	pthread_mutex_init(&lock->mutex, NULL);
}

/* The forking thread held none of the child's locks. */
static void in_child(void)
{
	thread_locks.n = 0;
}
FORK_WATCH(in_child);
