/* futex.h: waits for a word to change. Who waits holds nothing, so a handler of a signal may leave
 * the wait in any way, which a condition of pthreads would not survive. */
#ifndef GPU_LEASE_FUTEX_H
#define GPU_LEASE_FUTEX_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Longer than any wait lasts. With a limit the kernel ends a wait for every handler that the thread
 * runs; without one it goes on with the wait after those with SA_RESTART. */
#define FUTEX_LONGEST {INT_MAX, 0}

/* Waits while the word has this value, for `most` at most. It may return sooner. Returns whether
 * the thread has run a handler of a signal meanwhile. No cancellation point. */
static inline bool futex_wait(atomic_uint *word, unsigned int value, const struct timespec *most)
{
	return syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, most, NULL, 0) < 0 &&
	       errno == EINTR;
}

/* Wakes all who wait for the word, which the caller has changed. */
static inline void futex_wake_all(atomic_uint *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#endif
