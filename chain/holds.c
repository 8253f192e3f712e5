/* holds.c: what one component holds of the chain's buffers. */
#include "holds.h"

#include <string.h>

#define MOST_IN_FLIGHT ((1U << 17) - 1) /* of struct chain_use */

static uint64_t own_bit(const struct chain_holds *holds)
{
	return UINT64_C(1) << holds->member;
}

static uint64_t room_of(const struct chain_table *table, uint32_t index)
{
	return atomic_load_explicit(&table->rooms[index], memory_order_relaxed);
}

/* It begins behind the buffer that was found last: where buffers go round, the next one is the one
 * that has been away for longest. */
uint32_t holds_find(const struct chain_holds *holds, uint64_t size, bool close)
{
	const struct chain_table *table = holds->table;
	uint32_t top = table_top(table), found = CHAIN_BUFFERS, i = holds->next;
	uint64_t wanted = table_room(table, size), least = UINT64_MAX, room;

	for (uint32_t n = 0; n < top && least != wanted; n++, i++) {
		i = i < top ? i : 0;
		room = room_of(table, i);
		if (room < size || room >= least ||
		    (close && room / 2 >= size && room > CHAIN_UNIT) ||
		    !use_is_free(use_now(&table->buffers[i])))
			continue;
		found = i;
		least = room;
	}
	return found;
}

bool holds_begin(struct chain_holds *holds, uint32_t index, uint64_t size)
{
	struct chain_buffer *buffer = &holds->table->buffers[index];
	struct chain_use seen = use_now(buffer), next = seen;

	next.holders |= own_bit(holds);
	if (!use_is_free(seen) || !use_change(buffer, &seen, next))
		return false;
	holds->of[index].times = 1;
	if (room_of(holds->table, index) < size) { /* it got other memory since it was found */
		holds_end(holds, index);
		return false;
	}
	buffer->size = size;
	holds->next = index + 1;
	return true;
}

bool holds_end(struct chain_holds *holds, uint32_t index)
{
	struct chain_buffer *buffer;
	struct chain_use seen, next;

	if (!holds_one(holds, index))
		return false;
	if (--holds->of[index].times)
		return true;
	buffer = &holds->table->buffers[index];
	seen = use_now(buffer);
	do {
		next = seen;
		next.holders &= ~own_bit(holds);
	} while (!use_change(buffer, &seen, next));
	if (use_is_free(next))
		table_changed(holds->table);
	return true;
}

static void fill_handle(const struct chain_table *table, uint32_t index, uint64_t number,
                        uint64_t size, struct chain_handle *out)
{
	*out = (struct chain_handle){
	    .mark = CHAIN_MARK, .number = number, .size = size, .index = index};
	memcpy(out->chain, table->id, sizeof(out->chain));
	table_secret(table, index, number, out->secret);
}

/* Takers of an earlier put that are still to come have a handle of the same number. What others
 * read of the buffer is written before the change, since it may be another's afterwards. */
int holds_give(struct chain_holds *holds, uint32_t index, uint32_t takers, bool before,
               struct chain_handle *out)
{
	struct chain_table *table = holds->table;
	struct chain_buffer *buffer;
	struct chain_use seen, next;
	uint64_t size;

	if (!holds_one(holds, index))
		return GPU_LEASE_CHAIN_DROPPED;
	buffer = &table->buffers[index];
	size = buffer->size;
	atomic_store_explicit(&buffer->put_at, atomic_load(&table->ticks), memory_order_relaxed);
	seen = use_now(buffer);
	do {
		if (seen.flight + takers > MOST_IN_FLIGHT)
			return GPU_LEASE_CHAIN_LIMIT;
		if (before && seen.putter != NO_PUTTER)
			return GPU_LEASE_CHAIN_LATE;
		next = seen;
		next.number += !seen.flight;
		next.flight = seen.flight + takers;
		next.putter = before ? holds->member + 1 : seen.putter;
		if (!before && holds->of[index].times == 1)
			next.holders &= ~own_bit(holds);
	} while (!use_change(buffer, &seen, next));
	if (!before)
		holds->of[index].times--;
	fill_handle(table, index, next.number, size, out);
	return 0;
}

void holds_ready(struct chain_holds *holds, uint32_t index, uint64_t number)
{
	struct chain_buffer *buffer = &holds->table->buffers[index];
	struct chain_use seen = use_now(buffer), next;

	do {
		if (seen.number != number || seen.putter != holds->member + 1)
			return;
		next = seen;
		next.putter = NO_PUTTER;
	} while (!use_change(buffer, &seen, next));
	table_changed(holds->table);
}

int holds_know(const struct chain_holds *holds, const struct chain_handle *handle)
{
	if (memcmp(handle->mark, CHAIN_MARK, sizeof(handle->mark)) ||
	    handle->index >= CHAIN_BUFFERS)
		return GPU_LEASE_CHAIN_FORGED;
	return memcmp(handle->chain, holds->table->id, sizeof(handle->chain))
	           ? GPU_LEASE_CHAIN_OTHER
	           : 0;
}

/* Why a buffer that is used so is not to be had by this handle; 0: it is. */
static int refusal(const struct chain_table *table, const struct chain_handle *handle,
                   struct chain_use use)
{
	uint64_t secret[2];

	if (handle->number < use.number)
		return GPU_LEASE_CHAIN_STALE;
	table_secret(table, handle->index, handle->number, secret);
	if (handle->number > use.number || memcmp(handle->secret, secret, sizeof(secret)))
		return GPU_LEASE_CHAIN_FORGED;
	if (!use.flight)
		return GPU_LEASE_CHAIN_STALE;
	return use.putter == NO_PUTTER ? 0 : GPU_LEASE_CHAIN_LATE;
}

int holds_take(struct chain_holds *holds, const struct chain_handle *handle, uint64_t *size)
{
	struct chain_buffer *buffer = &holds->table->buffers[handle->index];
	struct chain_use seen = use_now(buffer), next;
	int status;

	do {
		status = refusal(holds->table, handle, seen);
		if (status)
			return status;
		next = seen;
		next.flight--;
		next.holders |= own_bit(holds);
	} while (!use_change(buffer, &seen, next));
	holds->of[handle->index].times++;
	*size = buffer->size;
	return 0;
}
