/* process.c: the end of the process. */
#include "base/process.h"

#include <pthread.h>
#include <stdlib.h>

atomic_bool process_ends;

__attribute__((destructor)) static void process_exits(void)
{
	atomic_store(&process_ends, true);
	for_each_watch(exit_watches, ends) (*ends)();
}

static void guard_exit(void)
{
	atexit(process_exits);
}

/* atexit() handlers run in reverse order. This is called after the driver has registered its own,
 * so ours runs before them. */
void process_guard_exit(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, guard_exit);
}
