/* quiet.c: tasks that are done while the gate is shut and no work is in flight.
 *
 * The client thread shuts the gate for them as it does for a revoke, and opens it again (lease.c).
 * The thread that asks for a task waits until all submitted work has finished and all captures have
 * ended.
 */
#include "gate/quiet.h"

#include "base/fork.h"
#include "base/locks.h"
#include "gate/waiting.h"
#include "work/captures.h"

struct task {
	struct task *next;
	void (*work)(void *argument);
	void *argument;
	bool done, begun;
};

static struct task *tasks;
static bool client_ended; /* no task will be done any more */
static struct lock lock = LOCK(LOCK_QUIET);
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void enter(struct task *task)
{
	task->next = tasks;
	tasks = task;
}

static void leave(struct task *task)
{
	struct task **at = &tasks;

	while (*at && *at != task)
		at = &(*at)->next;
	if (*at)
		*at = task->next;
}

CUresult quiet_do(void (*work)(void *argument), void *argument)
{
	struct task task = {.work = work, .argument = argument};
	CUresult result = client_start();

	if (result)
		return result;
	lock_take(&lock);
	enter(&task);
	client_wake();
	while (!task.done && (task.begun || !client_ended))
		lock_wait(&lock, &changed);
	leave(&task);
	lock_give(&lock);
	return task.done ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
}

bool quiet_wanted(void)
{
	bool wanted;

	lock_take(&lock);
	wanted = tasks && !captures_exist();
	lock_give(&lock);
	return wanted;
}

/* The caller holds the lock, which is released during the work. */
static void do_one(struct task *task)
{
	task->begun = true;
	leave(task);
	lock_give(&lock);
	task->work(task->argument);
	lock_take(&lock);
	task->done = true;
	pthread_cond_broadcast(&changed);
}

void quiet_now(void)
{
	lock_take(&lock);
	while (tasks && !captures_exist())
		do_one(tasks);
	lock_give(&lock);
}

void quiet_end(void)
{
	lock_take(&lock);
	client_ended = true;
	pthread_cond_broadcast(&changed);
	lock_give(&lock);
}

static void in_child(void)
{
	lock_after_fork(&lock);
	pthread_cond_init(&changed, NULL);
	tasks = NULL;
	client_ended = false;
}
FORK_WATCH(in_child);
