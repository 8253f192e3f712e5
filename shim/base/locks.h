/* locks.h: the locks of the interposer, and the one order in which a thread may take them.
 *
 * A thread that has a lock takes only such as stand below it here. Programs' calls come
 * into several of these files one through another, from many threads, and beside them
 * the client thread; this order is why none waits for another in a circle.
 *
 * A thread that has one of them is not cancelled (pthread_cancel): it would leave it
 * locked. So calls under a lock may be cancellation points, the driver's own too.
 *
 * In libgpulease-checked.so, which the tests load as well, whoever takes a lock out of
 * order or twice is ended with a message (GPU_LEASE_CHECK_LOCKS).
 */
#ifndef GPU_LEASE_LOCKS_H
#define GPU_LEASE_LOCKS_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

enum lock_rank {
	LOCK_PRIMARY,  /* hooks/contexts.c: retaining and releasing primary contexts, one at a time
	                */
	LOCK_CONTEXTS, /* contexts.c: the list; no context of it ends meanwhile */
	LOCK_CAPTURES, /* captures.c: the list; no capture begins meanwhile */
	LOCK_FLIGHTS,  /* pace_flight.c: work in flight */
	LOCK_MAPPED,   /* vmm.c: what the program maps by itself */
	LOCK_IMPORTS,  /* shared_import.c: memory of other processes */
	LOCK_ORDERED,  /* free_blocks.c: memory that pools keep */
	LOCK_SWAP,     /* devices.c: blocks, segments, devices */
	LOCK_CHUNKS,   /* chunks.c: pinned host memory */
	LOCK_POOLS,    /* pools.c: what is known of pools */
	LOCK_DEVICES,  /* devices.c: what they are called */
	LOCK_MEMORY,   /* ranges.c: ranges, and how many bytes there are */
	LOCK_LIMIT,    /* limit.c: bytes of the limit */
	LOCK_CLAIMS,   /* claims.c: host memory that was claimed */
	LOCK_MEETING,  /* meeting.c: who wants to meet whom */
	LOCK_QUIET,    /* quiet.c: what is to be done quietly */
	LOCK_WAITING,  /* waiting.c: who waits for the client thread */
	LOCK_TENANT,   /* tenant.c: what the daemon has said */
	N_LOCKS
};

struct lock {
	pthread_mutex_t mutex;
	enum lock_rank rank;
};

#define LOCK(rank) {PTHREAD_MUTEX_INITIALIZER, rank}

void lock_take(struct lock *lock);
void lock_give(struct lock *lock);
void lock_wait(struct lock *lock, pthread_cond_t *condition);
/* False: it is that late (of the wall clock). */
bool lock_wait_until(struct lock *lock, pthread_cond_t *condition, const struct timespec *when);
void lock_after_fork(struct lock *lock); /* in the child: nobody has it */

#endif
