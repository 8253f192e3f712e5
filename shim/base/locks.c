/* locks.c: taking and giving locks; see locks.h for the order. */
#include "base/locks.h"

#include "base/debug.h"
#include "base/fork.h"

#include <errno.h>
#include <stdlib.h>

/* How many this thread has, and whether it could be cancelled before. */
static __thread struct {
	unsigned int n;
	int cancel;
	enum lock_rank ranks[N_LOCKS]; /* of the checked library alone */
} thread_locks __attribute__((tls_model("initial-exec")));

#ifdef GPU_LEASE_CHECK_LOCKS

static const char *const names[N_LOCKS] = {
    [LOCK_PRIMARY] = "primary", [LOCK_CONTEXTS] = "contexts", [LOCK_CAPTURES] = "captures",
    [LOCK_FLIGHTS] = "flights", [LOCK_MAPPED] = "mapped",     [LOCK_ORDERED] = "ordered",
    [LOCK_SWAP] = "swap",       [LOCK_CHUNKS] = "chunks",     [LOCK_POOLS] = "pools",
    [LOCK_DEVICES] = "devices", [LOCK_MEMORY] = "memory",     [LOCK_LIMIT] = "limit",
    [LOCK_QUIET] = "quiet",     [LOCK_WAITING] = "waiting",   [LOCK_TENANT] = "tenant",
};

static void check_take(enum lock_rank rank)
{
	if (thread_locks.n && thread_locks.ranks[thread_locks.n - 1] >= rank) {
		complain("lock '%s' is taken by a thread that has '%s'", names[rank],
		         names[thread_locks.ranks[thread_locks.n - 1]]);
		abort();
	}
	thread_locks.ranks[thread_locks.n] = rank;
}

/* They need not be given in the order in which they were taken. */
static void check_give(enum lock_rank rank)
{
	unsigned int i = thread_locks.n;

	while (i && thread_locks.ranks[i - 1] != rank)
		i--;
	if (!i) {
		complain("lock '%s' is given by a thread that has not got it", names[rank]);
		abort();
	}
	for (; i < thread_locks.n; i++)
		thread_locks.ranks[i - 1] = thread_locks.ranks[i];
}

/* Who waits for others may keep nothing from them. */
static void check_wait(enum lock_rank rank)
{
	if (thread_locks.n == 1)
		return;
	complain("a thread waits with lock '%s' and has '%s'", names[rank],
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

bool lock_wait_until(struct lock *lock, pthread_cond_t *condition, const struct timespec *when)
{
	check_wait(lock->rank);
	return pthread_cond_timedwait(condition, &lock->mutex, when) != ETIMEDOUT;
}

void lock_after_fork(struct lock *lock)
{
	pthread_mutex_init(&lock->mutex, NULL);
}

/* This thread has none. */
static void in_child(void)
{
	thread_locks.n = 0;
}
FORK_WATCH(in_child);
