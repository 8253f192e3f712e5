/* fork.c: calls the functions of FORK_WATCH() in a forked child.
 *
 * glibc's pthread_atfork() is not in its shared library; what it calls there is. musl has nothing
 * of that name, and would end every program that preloads a library which cannot do without. With
 * musl no process gets a lease (thread.c), so nothing has to be forgotten in its children.
 */
#include "base/fork.h"

#include <stddef.h>

static void in_child(void)
{
	for_each_watch(fork_watches, child) (*child)();
}

extern void *__dso_handle __attribute__((visibility("hidden")));
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                             void *dso) __attribute__((weak));

__attribute__((constructor)) static void watch_forks(void)
{
	if (__register_atfork)
		__register_atfork(NULL, NULL, in_child, __dso_handle);
}
