/* threads.h: threads of our own in the program's process. */
#ifndef GPU_LEASE_THREADS_H
#define GPU_LEASE_THREADS_H

#include <stdbool.h>
#include <stddef.h>

/* Starts a detached thread that runs `run` with NULL and handles no signals, since those are for
 * the program's threads. stack_bytes: the size of its stack without thread-local variables, at
 * least PTHREAD_STACK_MIN. Returns false if the thread cannot be started. Any thread may call it.
 */
bool thread_start(void *(*run)(void *), size_t stack_bytes);

#endif
