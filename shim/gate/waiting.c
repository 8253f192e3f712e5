/* waiting.c: threads of the program that wait for the client thread. */
#include "gate/waiting.h"

#include "base/clock.h"
#include "base/fork.h"
#include "base/futex.h"
#include "base/locks.h"
#include "base/process.h"

#include <errno.h>
#include <signal.h>

/* A thread that waits. */
struct waiter {
	enum wait_reason reason;
	bool (*fulfilled)(void);
	CUresult result;
	bool counted;      /* in `waiting`, until `changes` is not `seen` any more */
	unsigned int seen; /* `changes` when it looked last */
};

static struct lock lock = LOCK(LOCK_WAITING);
static atomic_uint changes;         /* so far; it changes under the lock */
static int waiting[N_WAIT_REASONS]; /* who waits, and has said so since the last change */
static atomic_bool refused;

bool waiting_is_refused(void)
{
	return atomic_load(&refused);
}

/* Caller holds the lock. */
static bool start_client(void)
{
	bool started = false;

	for_each_watch(client_threads, thread) started |= (*thread)->start();
	return started;
}

CUresult client_start(void)
{
	bool started;

	lock_take(&lock);
	started = start_client();
	lock_give(&lock);
	return started ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

void client_wake(void)
{
	for_each_watch(client_threads, thread)(*thread)->wake();
}

/* A thread may leave its wait and not say so: a handler of a signal calls longjmp() or
 * pthread_exit(). So at each change nobody counts, and who still waits says so again. */
static bool is_counted(const struct waiter *waiter)
{
	return waiter->counted && waiter->seen == atomic_load(&changes);
}

/* Caller holds the lock. */
static void keep_waiting(struct waiter *waiter)
{
	if (is_counted(waiter))
		return;
	waiter->counted = true;
	waiter->seen = atomic_load(&changes);
	waiting[waiter->reason]++;
	client_wake();
}

/* Caller holds the lock. While the process exits there are no leases any more. */
static bool wait_ends(struct waiter *waiter)
{
	if (!start_client()) {
		waiter->result = CUDA_ERROR_OPERATING_SYSTEM;
	} else if (waiter->fulfilled()) {
		waiter->result = CUDA_SUCCESS;
	} else if (waiting_is_refused()) {
		waiter->result = CUDA_ERROR_NOT_PERMITTED;
	} else if (atomic_load(&process_ends)) {
		waiter->result = CUDA_ERROR_DEINITIALIZED;
	} else {
		keep_waiting(waiter);
		return false;
	}
	if (is_counted(waiter))
		waiting[waiter->reason]--;
	return true;
}

/* No handler of a signal runs meanwhile, since it could leave the lock taken. */
static bool look(struct waiter *waiter)
{
	sigset_t all, before;
	bool ends;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	lock_take(&lock);
	ends = wait_ends(waiter);
	lock_give(&lock);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ends;
}

CUresult wait_until(enum wait_reason reason, bool (*fulfilled)(void))
{
	struct waiter waiter = {.reason = reason, .fulfilled = fulfilled};
	int saved_errno = errno;

	while (!look(&waiter))
		futex_wait(&changes, waiter.seen, NULL);
	errno = saved_errno;
	return waiter.result;
}

bool wait_for_ms(int ms, bool (*fulfilled)(void))
{
	struct waiter waiter = {.reason = WAIT_BRIEFLY, .fulfilled = fulfilled};
	uint64_t end = now_ns() + (uint64_t)ms * 1000000;
	int64_t left = 0;
	int saved_errno = errno;

	while (!look(&waiter) && (left = (int64_t)(end - now_ns())) > 0) {
		struct timespec most = {left / 1000000000, left % 1000000000};

		futex_wait(&changes, waiter.seen, &most);
	}
	errno = saved_errno;
	return fulfilled();
}

int threads_waiting(enum wait_reason reason)
{
	int n;

	lock_take(&lock);
	n = waiting[reason];
	lock_give(&lock);
	return n;
}

/* Caller holds the lock. */
static void note_change(void)
{
	for (int i = 0; i < N_WAIT_REASONS; i++)
		waiting[i] = 0;
	atomic_fetch_add(&changes, 1);
	futex_wake_all(&changes);
}

void waiting_wake_all(void)
{
	lock_take(&lock);
	note_change();
	lock_give(&lock);
}

void waiting_refuse(void)
{
	lock_take(&lock);
	atomic_store(&refused, true);
	note_change();
	lock_give(&lock);
}

static void in_child(void)
{
	lock_after_fork(&lock);
	note_change();
	atomic_store(&refused, false);
}
FORK_WATCH(in_child);
