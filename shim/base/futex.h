/* futex.h: waits for a word to change. Who waits holds nothing, so a handler of a signal may leave
 * the wait in any way, which a condition of pthreads would not survive. */
#ifndef GPU_LEASE_FUTEX_H
#define GPU_LEASE_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Waits while the word has this value, for `most` at most (NULL: for ever). It may return sooner.
 * No cancellation point. */
static inline void futex_wait(atomic_uint *word, unsigned int value, const struct timespec *most)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, most, NULL, 0);
}

/* Wakes all who wait for the word, which the caller has changed. */
static inline void futex_wake_all(atomic_uint *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#endif
