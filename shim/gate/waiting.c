/* waiting.c: threads of the program that wait for the client thread. */
#include "gate/waiting.h"

#include "base/clock.h"
#include "base/fork.h"
#include "base/locks.h"
#include "base/process.h"

#include <errno.h>

static struct lock lock = LOCK(LOCK_WAITING);
static pthread_cond_t changed; /* it goes by the monotonic clock */
static int waiting[N_WAIT_REASONS];
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

/* Caller holds the lock. While the process exits there are no leases any more. */
static CUresult wait_for_change(void)
{
	if (waiting_is_refused())
		return CUDA_ERROR_NOT_PERMITTED;
	if (atomic_load(&process_ends))
		return CUDA_ERROR_DEINITIALIZED;
	lock_wait(&lock, &changed);
	return CUDA_SUCCESS;
}

CUresult wait_until(enum wait_reason reason, bool (*fulfilled)(void))
{
	CUresult result = CUDA_SUCCESS;
	int saved_errno = errno;

	lock_take(&lock);
	if (!start_client())
		result = CUDA_ERROR_OPERATING_SYSTEM;
	waiting[reason]++;
	if (!fulfilled())
		client_wake();
	while (!result && !fulfilled())
		result = wait_for_change();
	waiting[reason]--;
	lock_give(&lock);
	errno = saved_errno;
	return result;
}

bool wait_for_ms(int ms, bool (*fulfilled)(void))
{
	uint64_t end = now_ns() + (uint64_t)ms * 1000000;
	struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
	bool is_fulfilled, in_time = true;
	int saved_errno = errno;

	lock_take(&lock);
	while (start_client() && !fulfilled() && !waiting_is_refused() && in_time)
		in_time = lock_wait_until(&lock, &changed, &until);
	is_fulfilled = fulfilled();
	lock_give(&lock);
	errno = saved_errno;
	return is_fulfilled;
}

int threads_waiting(enum wait_reason reason)
{
	int n;

	lock_take(&lock);
	n = waiting[reason];
	lock_give(&lock);
	return n;
}

void waiting_wake_all(void)
{
	lock_take(&lock);
	pthread_cond_broadcast(&changed);
	lock_give(&lock);
}

void waiting_refuse(void)
{
	lock_take(&lock);
	atomic_store(&refused, true);
	pthread_cond_broadcast(&changed);
	lock_give(&lock);
}

__attribute__((constructor)) static void make_condition(void)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&changed, &attributes);
	pthread_condattr_destroy(&attributes);
}

static void in_child(void)
{
	lock_after_fork(&lock);
	make_condition();
	for (int i = 0; i < N_WAIT_REASONS; i++)
		waiting[i] = 0;
	atomic_store(&refused, false);
}
FORK_WATCH(in_child);
