/* fork.c: calls the functions of FORK_WATCH() in a forked child. */
#include "base/fork.h"

#include <pthread.h>

static void in_child(void)
{
	for_each_watch(fork_watches, child) (*child)();
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}
