/* locks.h: the locks of the interposer, and the one order in which a thread may take them.
 *
 * A thread that holds a lock takes only locks that stand below it in LOCK_RANKS. Many threads
 * of the program and the client thread take locks of several files, one inside another; because of
 * this order they never wait for each other in a circle.
 *
 * A thread that holds a lock is not cancelled (pthread_cancel), since it would leave the lock
 * taken. So functions called under a lock may be cancellation points, the driver's too.
 *
 * libgpulease-checked.so, which the tests load instead, ends the process with a message when a
 * thread takes a lock out of order or twice (GPU_LEASE_CHECK_LOCKS).
 */
#ifndef GPU_LEASE_LOCKS_H
#define GPU_LEASE_LOCKS_H

#include <pthread.h>
#include <stdbool.h>

/* Every lock, by its rank: RANK(enum constant, name in messages). */
#define LOCK_RANKS(RANK)                                                                           \
	/* hooks/contexts.c: primary contexts are retained and released under it */                \
	RANK(LOCK_PRIMARY, "primary")                                                              \
	/* contexts.c: the list of contexts; none ends while it is held */                         \
	RANK(LOCK_CONTEXTS, "contexts")                                                            \
	/* captures.c: the list of captures; none begins while it is held */                       \
	RANK(LOCK_CAPTURES, "captures")                                                            \
	/* pace_flight.c: work in flight */                                                        \
	RANK(LOCK_FLIGHTS, "flights")                                                              \
	/* vmm.c: memory that the program maps itself */                                           \
	RANK(LOCK_MAPPED, "mapped")                                                                \
	/* shared_import.c: memory of other processes */                                           \
	RANK(LOCK_IMPORTS, "imports")                                                              \
	/* free_blocks.c: freed memory that pools keep */                                          \
	RANK(LOCK_ORDERED, "ordered")                                                              \
	/* swap/lane.c: blocks, segments, lanes */                                                 \
	RANK(LOCK_SWAP, "swap")                                                                    \
	/* chunks.c: pinned host memory */                                                         \
	RANK(LOCK_CHUNKS, "chunks")                                                                \
	/* pools.c: the program's pools */                                                         \
	RANK(LOCK_POOLS, "pools")                                                                  \
	/* driver/devices.c: the UUIDs of devices */                                               \
	RANK(LOCK_DEVICES, "devices")                                                              \
	/* ranges.c: ranges, and the bytes of each device */                                       \
	RANK(LOCK_MEMORY, "memory")                                                                \
	/* claims.c: claimed host memory */                                                        \
	RANK(LOCK_CLAIMS, "claims")                                                                \
	/* used.c: bytes that count towards the limit */                                           \
	RANK(LOCK_USED, "used")                                                                    \
	/* meeting.c: requests to be introduced to other processes */                              \
	RANK(LOCK_MEETING, "meeting")                                                              \
	/* quiet.c: tasks that need a quiet device */                                              \
	RANK(LOCK_QUIET, "quiet")                                                                  \
	/* waiting.c: threads that wait for the client thread */                                   \
	RANK(LOCK_WAITING, "waiting")                                                              \
	/* tenant.c: what the daemon has said of the job */                                        \
	RANK(LOCK_TENANT, "tenant")                                                                \
	/* channels/groups.c: the driver's library calls it with locks of its own held */          \
	RANK(LOCK_CHANNELS, "channels")

enum lock_rank {
#define LOCK_NUMBER(rank, name) rank,
	LOCK_RANKS(LOCK_NUMBER)
#undef LOCK_NUMBER
	    N_LOCKS
};

struct lock {
	pthread_mutex_t mutex;
	enum lock_rank rank;
};

#define LOCK(rank) {PTHREAD_MUTEX_INITIALIZER, rank}

/* Waits until the lock is free, takes it, and defers the thread's cancellation. */
void lock_take(struct lock *lock);
/* Releases a lock that the calling thread holds. */
void lock_give(struct lock *lock);
/* As pthread_cond_wait(). The caller holds this lock and no other. */
void lock_wait(struct lock *lock, pthread_cond_t *condition);
/* Called in a forked child by the file that owns the lock: afterwards nobody holds it. */
void lock_after_fork(struct lock *lock);

#endif
