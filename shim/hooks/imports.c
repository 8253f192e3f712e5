/* imports.c: a thread that maps lent memory (memory/shared.h) again at each grant.
 *
 * It asks the process that has the memory, through the daemon, and waits for it. The client thread
 * cannot: it hears the daemon's answers.
 */
#include "hooks/imports.h"

#include "base/clock.h"
#include "base/fork.h"
#include "base/process.h"
#include "base/threads.h"
#include "gate/waiting.h"
#include "lease/meeting.h"
#include "memory/shared.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define STACK_BYTES (256 * 1024)
#define EXIT_NS (UINT64_C(2000) * 1000000) /* how long exit() waits for the thread */
#define EXIT_PAUSE_US 100

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;
static atomic_bool in_driver;

static void map_next(void)
{
	struct shared_handle handle;
	unsigned long turn;
	struct import *import = shared_next(&handle, &turn);
	const uint64_t what[2] = {handle.block, handle.offset};
	int end = -1;

	if (meeting_ask(handle.name, what, &end))
		end = -1;
	atomic_store(&in_driver, true);
	if (!atomic_load(&process_ends))
		shared_map_again(import, turn, end);
	atomic_store(&in_driver, false);
	if (end >= 0)
		close(end);
	client_wake();
}

static void *imports_main(void *argument)
{
	(void)argument;
	while (!atomic_load(&process_ends))
		map_next();
	return NULL;
}

bool imports_follow(void)
{
	bool runs;

	pthread_mutex_lock(&start_lock);
	if (!started)
		started = thread_start(imports_main, STACK_BYTES);
	runs = started;
	pthread_mutex_unlock(&start_lock);
	return runs;
}

static void leave_driver(void)
{
	uint64_t begun = now_ns();

	while (atomic_load(&in_driver) && now_ns() - begun < EXIT_NS)
		pause_us(EXIT_PAUSE_US);
}
EXIT_WATCH(leave_driver);

static void in_child(void)
{
	pthread_mutex_init(&start_lock, NULL);
	started = false;
	atomic_store(&in_driver, false);
}
FORK_WATCH(in_child);
