/* table.h: the table of a chain's buffers, in memory that the keeper and all components share.
 *
 * A component may be killed at any point. So each change is a few stores in such an order that
 * after any of them the table is sound: a buffer has too many who hold it, never too few, and the
 * keeper takes away what a dead component had (keeper.c).
 */
#ifndef CHAIN_TABLE_H
#define CHAIN_TABLE_H

#include "gpu_lease_chain.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Of handles, and of what this file says: another number once anything of it is another thing. */
#define CHAIN_MARK "GPLCHN1"
#define CHAIN_BUFFERS 4096
#define CHAIN_MEMBERS 64
#define CHAIN_TAKERS 65535
#define CHAIN_UNIT (UINT64_C(2) << 20) /* bytes: sizes of buffers are multiples of it */
#define NO_MEMBER UINT32_MAX

/* What a handle has in its 64 bytes. */
struct chain_handle {
	char mark[8];       /* CHAIN_MARK */
	uint8_t chain[16];  /* the chain's random number */
	uint8_t secret[16]; /* the put's */
	uint64_t number;    /* of the put, among those of the buffer */
	uint64_t size;      /* bytes that the buffer's allocator asked for */
	uint32_t index;     /* of the buffer */
	uint32_t zero;
};
_Static_assert(sizeof(struct chain_handle) == GPU_LEASE_HANDLE_BYTES, "a handle is 64 bytes");

enum buffer_state {
	BUFFER_NONE, /* it has no memory */
	BUFFER_FREE, /* nobody has it */
	BUFFER_USED
};

struct chain_buffer {
	enum buffer_state state;
	uint32_t birth;  /* how often it has got memory */
	uint64_t room;   /* bytes of its memory */
	uint64_t size;   /* that were asked for */
	uint64_t number; /* of the last put; handles of earlier ones are stale */
	uint64_t put_at; /* ticks of the last put */
	uint8_t secret[16];
	uint32_t flight; /* takers that have not got it yet */
	uint32_t putter; /* the member whose work on it is to end first; NO_MEMBER: it has ended */
	uint16_t held[CHAIN_MEMBERS]; /* how often each member holds it */
	uint8_t memory[64];           /* the CUDA IPC handle of its memory */
};

struct chain_table {
	uint8_t id[16]; /* random */
	uint64_t limit, bytes;
	uint64_t keep_ticks;
	uint64_t ticks; /* seconds in which the keeper has run */
	pthread_mutex_t lock;
	_Atomic uint32_t changed; /* a futex: something was dropped, is ready, or is lost */
	_Atomic uint32_t waiters; /* somebody may wait for it */
	uint32_t top;             /* buffers from here on never had memory */
	uint32_t members;
	struct chain_buffer buffers[CHAIN_BUFFERS];
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
/* Takes the lock, also when its holder was killed. */
void table_take(struct chain_table *table);
void table_give(struct chain_table *table);
/* Tells those who wait that something has changed. */
void table_changed(struct chain_table *table);
/* Waits for a change after `seen` was read, for at most so many ms. */
void table_wait(struct chain_table *table, uint32_t seen, int ms);

/* -- the caller has the lock -- */

bool buffer_is_held(const struct chain_buffer *buffer);
/* Makes it free if nobody has it. */
void buffer_settle(struct chain_buffer *buffer);
/* Nobody will take it any more. */
void buffer_end_flight(struct chain_buffer *buffer);
/* The smallest free buffer of that size; with `close` one that is less than twice as large. NULL:
 * there is none. */
struct chain_buffer *table_free_buffer(struct chain_table *table, uint64_t size, bool close);

#endif
