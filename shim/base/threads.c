/* threads.c: threads of our own in the program's process. */
#include "base/threads.h"

#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>

/* Bytes of the thread-local variables of the program and of the libraries that it started with.
 * glibc takes them from each thread's stack. Fortran programs with threadprivate variables may have
 * megabytes of them. */
static size_t thread_local_bytes;

/* Called for each loaded library. */
static int count_thread_local(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)size;
	(void)data;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_TLS)
			thread_local_bytes +=
			    info->dlpi_phdr[i].p_memsz + info->dlpi_phdr[i].p_align;
	return 0;
}

/* It is done when this library is loaded, since the loader's lock may not be waited for later. */
__attribute__((constructor)) static void measure_thread_local(void)
{
	dl_iterate_phdr(count_thread_local, NULL);
}

/* The new thread inherits the signal mask of the calling thread. */
bool thread_start(void *(*run)(void *), size_t stack_bytes)
{
	pthread_attr_t attributes;
	sigset_t all, old;
	pthread_t thread;
	bool started;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, stack_bytes + thread_local_bytes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	started = !pthread_create(&thread, &attributes, run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
	return started;
}
