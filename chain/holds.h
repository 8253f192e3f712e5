/* holds.h: what one component holds of the chain's buffers, and how it changes that.
 *
 * A process may hold a buffer several times. The table says only that it does, so that its end
 * takes away all of that at once; how often, the process knows by itself. The caller has a lock
 * that all threads of the process take for these calls, where nothing else is said. None of them
 * waits.
 */
#ifndef CHAIN_HOLDS_H
#define CHAIN_HOLDS_H

#include "table.h"

#include <cuda.h>

struct chain_held {
	_Atomic uint32_t birth; /* of the buffer whose memory is open at `at`; 0: none is */
	uint32_t times;         /* how often this process holds it */
	CUdeviceptr at;
};

struct chain_holds {
	struct chain_table *table;
	uint32_t member; /* this component's number */
	uint32_t next;   /* where a free buffer is looked for first */
	struct chain_held of[CHAIN_BUFFERS];
};

/* Needs no lock. Is its memory open in this process? As long as the buffer is held that stays so.
 */
static inline bool holds_open(const struct chain_holds *holds, uint32_t index)
{
	return atomic_load_explicit(&holds->of[index].birth, memory_order_acquire) ==
	       atomic_load_explicit(&holds->table->buffers[index].birth, memory_order_relaxed);
}

static inline bool holds_one(const struct chain_holds *holds, uint32_t index)
{
	return index < CHAIN_BUFFERS && holds->of[index].times;
}

/* The smallest free buffer of that size; with `close` one that is less than twice as large.
 * CHAIN_BUFFERS: there is none. */
uint32_t holds_find(const struct chain_holds *holds, uint64_t size, bool close);
/* Holds a free buffer. False: another component was faster. */
bool holds_begin(struct chain_holds *holds, uint32_t index, uint64_t size);
/* Holds it once less. False: it is not held. */
bool holds_end(struct chain_holds *holds, uint32_t index);
/* Gives a buffer away: it is held once less, unless it is given before its work is over. Returns 0,
 * GPU_LEASE_CHAIN_DROPPED, GPU_LEASE_CHAIN_LIMIT, or GPU_LEASE_CHAIN_LATE: the work of another put
 * is to end before, so it cannot be given before the work of this one has. */
int holds_give(struct chain_holds *holds, uint32_t index, uint32_t takers, bool before,
               struct chain_handle *out);
/* Needs no lock. The work on the buffer that was given before is over. */
void holds_ready(struct chain_holds *holds, uint32_t index, uint64_t number);
/* Whether it may be a handle of this chain: 0, GPU_LEASE_CHAIN_FORGED, or GPU_LEASE_CHAIN_OTHER. */
int holds_know(const struct chain_holds *holds, const struct chain_handle *handle);
/* Holds the buffer of a handle that may be one of this chain. Returns 0, GPU_LEASE_CHAIN_LATE (its
 * work is not over), GPU_LEASE_CHAIN_FORGED, or GPU_LEASE_CHAIN_STALE. */
int holds_take(struct chain_holds *holds, const struct chain_handle *handle, uint64_t *size);

#endif
