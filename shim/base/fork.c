/* fork.c: calls in a forked child what files have asked for. */
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
