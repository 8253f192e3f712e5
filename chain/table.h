/* table.h: the table of a chain's buffers, in memory that the keeper and all components share.
 *
 * A component may be killed or stopped at any point, so nobody takes a lock: what belongs together
 * of a buffer is 16 bytes, which one instruction changes, if they are still what they were. Whoever
 * is killed has done all of a change or nothing of it, and holds nobody up. What a dead component
 * had the keeper takes away (keeper.c).
 */
#ifndef CHAIN_TABLE_H
#define CHAIN_TABLE_H

#include "gpu_lease_chain.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Of handles, and of what this file says: another number once anything of it is another thing. */
#define CHAIN_MARK "GPLCHN2"
#define CHAIN_BUFFERS 4096
#define CHAIN_MEMBERS 64
#define CHAIN_TAKERS 65535
#define CHAIN_UNIT (UINT64_C(2) << 20) /* bytes: sizes of buffers are multiples of it */
#define CHAIN_LINE 64                  /* bytes that processors pass each other at once */
#define NO_PUTTER 0

/* What a handle has in its 64 bytes. */
struct chain_handle {
	char mark[8];       /* CHAIN_MARK */
	uint8_t chain[16];  /* the chain's random number */
	uint64_t secret[2]; /* the put's (table_secret()) */
	uint64_t number;    /* of the put, among those of the buffer */
	uint64_t size;      /* bytes that the buffer's allocator asked for */
	uint32_t index;     /* of the buffer */
	uint32_t zero;
};
_Static_assert(sizeof(struct chain_handle) == GPU_LEASE_HANDLE_BYTES, "a handle is 64 bytes");

/* Who has a buffer. It is free if it has memory, and nobody holds it or is to take it. */
struct chain_use {
	uint64_t holders;     /* a bit for each member that holds it */
	uint64_t number : 39; /* of the last put; handles of earlier ones are stale */
	uint64_t flight : 17; /* takers that have not got it yet */
	uint64_t putter : 7;  /* 1 + the member whose work on it is to end first, or NO_PUTTER */
	uint64_t memory : 1;  /* it has some */
};

__extension__ typedef unsigned __int128 chain_use_bits;

union chain_use_cell {
	struct chain_use use;
	uint64_t halves[2];
	chain_use_bits bits;
};
_Static_assert(sizeof(union chain_use_cell) == 16, "one instruction changes it");

/* All that a call changes or reads of a buffer is one line. */
struct chain_buffer {
	_Alignas(CHAIN_LINE) union chain_use_cell cell;
	uint64_t size;           /* bytes that were asked for; who allocates it writes it */
	_Atomic uint32_t put_at; /* ticks of the last put */
	_Atomic uint32_t birth;  /* how often it has got memory */
};
_Static_assert(sizeof(struct chain_buffer) == CHAIN_LINE, "and no other buffer's");

/* What the keeper has seen of the last put of a buffer. */
struct chain_flight {
	uint64_t number;
	uint32_t since; /* ticks; while its work goes on it is as if it had just been put */
	uint32_t zero;
};

struct chain_table {
	/* Read in each call, and seldom written. */
	uint8_t id[16];           /* random */
	uint64_t key[2];          /* random; of the secrets in handles */
	uint64_t limit;           /* bytes */
	_Atomic uint32_t top;     /* buffers from here on never had memory */
	_Atomic uint32_t ticks;   /* seconds in which the keeper has run */
	_Atomic uint32_t changed; /* a futex: something was dropped, is ready, or is lost */
	_Atomic uint32_t waiters; /* somebody may wait for it */
	/* Asked for by few. */
	_Alignas(CHAIN_LINE) uint64_t keep_ticks;
	_Atomic uint64_t bytes;
	_Atomic uint32_t members;
	/* Bytes of each buffer's memory, side by side, for those who look for a free one. */
	_Alignas(CHAIN_LINE) _Atomic uint64_t rooms[CHAIN_BUFFERS];
	struct chain_buffer buffers[CHAIN_BUFFERS];
	struct chain_flight flights[CHAIN_BUFFERS];
	uint8_t memory[CHAIN_BUFFERS][64]; /* the CUDA IPC handle of each one's memory */
};

/* What the keeper says first, with the table's descriptor unless it refuses. */
struct chain_hello {
	char mark[8];
	uint32_t status; /* enum gpu_lease_chain_status */
	uint32_t member; /* the component's number */
};

/* A component wants memory; the keeper answers with the same message. */
struct chain_grow {
	uint64_t size;   /* bytes */
	uint32_t status; /* enum gpu_lease_chain_status; 0: there is a free buffer of that size */
	int32_t cuda;    /* the driver's error */
};

bool table_begin(struct chain_table *table, uint64_t limit, uint32_t keep_s);
/* How much memory a buffer of so many bytes gets. */
uint64_t table_room(const struct chain_table *table, uint64_t size);
/* A buffer has so much memory from now on, or none if it is free: then returns true. Only the
 * keeper calls these two, so what has no memory stays so meanwhile. */
void table_offer(struct chain_table *table, uint32_t index, uint64_t room);
bool table_retire(struct chain_table *table, uint32_t index);
/* A member has ended. What it was to finish is lost; what it has given away is not. */
void table_forget(struct chain_table *table, uint32_t member);
/* A second has passed in which the keeper ran: handles that nobody has taken for too long are
 * stale. present: a bit for each member that is there. Returns how many takers are still to come.
 */
uint32_t table_tick(struct chain_table *table, uint64_t present);
/* Tells those who wait that something has changed. */
void table_changed(struct chain_table *table);
/* From here on changes are told. Returns what table_wait() is to be given, if what the caller waits
 * for has still not come. */
uint32_t table_will_wait(struct chain_table *table);
/* Waits for a change, for at most so many ms. */
void table_wait(struct chain_table *table, uint32_t seen, int ms);
/* The secret of handles of that put of a buffer, SipHash-2-4 of 128 bits of both numbers. Handles
 * tell nothing of the secrets of others; those who are in the chain can read the key. */
void table_secret(const struct chain_table *table, uint32_t index, uint64_t number,
                  uint64_t secret[2]);

/* Its halves may be of two moments; then use_change() fails. */
static inline struct chain_use use_now(const struct chain_buffer *buffer)
{
	union chain_use_cell cell;

	cell.halves[0] = __atomic_load_n(&buffer->cell.halves[0], __ATOMIC_ACQUIRE);
	cell.halves[1] = __atomic_load_n(&buffer->cell.halves[1], __ATOMIC_ACQUIRE);
	return cell.use;
}

/* Changes it, unless it is no more what was seen: then returns false, and *seen is what it is. */
static inline bool use_change(struct chain_buffer *buffer, struct chain_use *seen,
                              struct chain_use next)
{
	union chain_use_cell before = {.use = *seen}, after = {.use = next}, found;

	found.bits = __sync_val_compare_and_swap(&buffer->cell.bits, before.bits, after.bits);
	*seen = found.use;
	return found.bits == before.bits;
}

/* Whatever a component has written there. */
static inline uint32_t table_top(const struct chain_table *table)
{
	uint32_t top = atomic_load_explicit(&table->top, memory_order_acquire);

	return top < CHAIN_BUFFERS ? top : CHAIN_BUFFERS;
}

static inline bool use_is_free(struct chain_use use)
{
	return use.memory && !use.holders && !use.flight;
}

#endif
