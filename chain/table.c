/* table.c: the table of a chain's buffers. */
#include "table.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool table_begin(struct chain_table *table, uint64_t limit, uint32_t keep_s)
{
	table->limit = limit;
	table->keep_ticks = keep_s;
	return getrandom(table->id, sizeof(table->id), 0) == sizeof(table->id) &&
	       getrandom(table->key, sizeof(table->key), 0) == sizeof(table->key);
}

/* Rounded up by a quarter at most, so that a buffer serves others that are a little larger or
 * smaller. */
uint64_t table_room(const struct chain_table *table, uint64_t size)
{
	uint64_t step = CHAIN_UNIT, room;

	while (step <= size / 8)
		step *= 2;
	room = (size + step - 1) / step * step;
	return room < table->limit ? room : table->limit;
}

void table_offer(struct chain_table *table, uint32_t index, uint64_t room)
{
	struct chain_buffer *buffer = &table->buffers[index];
	struct chain_use seen = use_now(buffer), next;

	table->rooms[index] = room;
	buffer->birth++;
	table->bytes += room;
	do {
		next = seen;
		next.memory = 1;
	} while (!use_change(buffer, &seen, next));
	if (index >= table->top)
		table->top = index + 1;
}

bool table_retire(struct chain_table *table, uint32_t index)
{
	struct chain_buffer *buffer = &table->buffers[index];
	struct chain_use seen = use_now(buffer), next = seen;

	next.memory = 0;
	if (!use_is_free(seen) || !use_change(buffer, &seen, next))
		return false;
	table->bytes -= table->rooms[index];
	table->rooms[index] = 0;
	return true;
}

void table_forget(struct chain_table *table, uint32_t member)
{
	for (uint32_t i = 0; i < table_top(table); i++) {
		struct chain_buffer *buffer = &table->buffers[i];
		struct chain_use seen = use_now(buffer), next;

		do {
			next = seen;
			next.holders &= ~(UINT64_C(1) << member);
			if (seen.putter == member + 1)
				next.flight = next.putter = 0;
		} while (!use_change(buffer, &seen, next));
	}
	table_changed(table);
}

/* Since when the takers of a buffer may come. A component may have been stopped for long in the
 * middle of its put, so put_at alone does not say. */
static uint32_t flies_since(const struct chain_table *table, struct chain_flight *flight,
                            struct chain_use use, uint32_t put_at, uint64_t present)
{
	bool worked_on =
	    use.putter && use.putter <= CHAIN_MEMBERS && present >> (use.putter - 1) & 1;
	uint32_t now = table->ticks;

	if (flight->number != use.number || worked_on)
		*flight = (struct chain_flight){.number = use.number, .since = now};
	return now - put_at < now - flight->since ? put_at : flight->since;
}

/* Nobody will take it any more, unless something changes just now. */
static bool end_flight(struct chain_table *table, uint32_t index, struct chain_use seen,
                       uint64_t present)
{
	struct chain_buffer *buffer = &table->buffers[index];
	struct chain_use next = seen;
	uint32_t since = flies_since(table, &table->flights[index], seen, buffer->put_at, present);

	next.flight = next.putter = 0;
	return table->ticks - since > table->keep_ticks && use_change(buffer, &seen, next);
}

uint32_t table_tick(struct chain_table *table, uint64_t present)
{
	uint32_t flying = 0;
	bool any = false;

	table->ticks++;
	for (uint32_t i = 0; i < table_top(table); i++) {
		struct chain_use use = use_now(&table->buffers[i]);

		if (use.flight && end_flight(table, i, use, present))
			any = true;
		else
			flying += use.flight;
	}
	if (any)
		table_changed(table);
	return flying;
}

/* Whoever has changed something looks for those who wait, and whoever waits has said so before it
 * looks for a change: one of them sees the other. */
void table_changed(struct chain_table *table)
{
	if (!atomic_load(&table->waiters))
		return;
	atomic_store(&table->waiters, 0);
	atomic_fetch_add(&table->changed, 1);
	syscall(SYS_futex, &table->changed, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t table_will_wait(struct chain_table *table)
{
	uint32_t seen = atomic_load(&table->changed);

	atomic_store(&table->waiters, 1);
	atomic_thread_fence(memory_order_seq_cst);
	return seen;
}

void table_wait(struct chain_table *table, uint32_t seen, int ms)
{
	struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};

	syscall(SYS_futex, &table->changed, FUTEX_WAIT, seen, &time, NULL, 0);
}

static uint64_t turned(uint64_t bits, int by)
{
	return bits << by | bits >> (64 - by);
}

/* Rounds of SipHash (https://www.aumasson.jp/siphash/siphash.pdf). */
static void sip(uint64_t v[4], int rounds)
{
	while (rounds--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = turned(v[1], 13) ^ v[0];
		v[3] = turned(v[3], 16) ^ v[2];
		v[0] = turned(v[0], 32) + v[3];
		v[2] += v[1];
		v[3] = turned(v[3], 21) ^ v[0];
		v[1] = turned(v[1], 17) ^ v[2];
		v[2] = turned(v[2], 32);
	}
}

void table_secret(const struct chain_table *table, uint32_t index, uint64_t number,
                  uint64_t secret[2])
{
	const uint64_t words[3] = {number, index, UINT64_C(16) << 56}; /* and its 16 bytes */
	uint64_t v[4] = {table->key[0] ^ UINT64_C(0x736f6d6570736575),
	                 table->key[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
	                 table->key[0] ^ UINT64_C(0x6c7967656e657261),
	                 table->key[1] ^ UINT64_C(0x7465646279746573)};

	for (int i = 0; i < 3; i++) {
		v[3] ^= words[i];
		sip(v, 2);
		v[0] ^= words[i];
	}
	v[2] ^= 0xee;
	sip(v, 4);
	secret[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
	v[1] ^= 0xdd;
	sip(v, 4);
	secret[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}
