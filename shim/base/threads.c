/* threads.c: threads of our own in the program's process. */
#include "base/threads.h"

#include <pthread.h>
#include <signal.h>

/* The new thread inherits the signal mask of the calling thread. */
bool thread_start(void *(*run)(void *), size_t stack_bytes)
{
	pthread_attr_t attributes;
	sigset_t all, old;
	pthread_t thread;
	bool started;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, stack_bytes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	started = !pthread_create(&thread, &attributes, run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
	return started;
}
