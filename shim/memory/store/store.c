/* store.c: the store of copies in pinned host memory, which the daemon lends or, where it
 * has none, the process allocates.
 *
 * A copy takes whole units of chunks, wherever they are free (chunks.c). So the store never
 * has more memory than it needs, except for a part of one chunk. A forked child has no chunks.
 */
#include "memory/store/store.h"

#include "base/locks.h"
#include "memory/store/chunk_pages.h"
#include "memory/store/chunks.h"
#include "memory/store/node_chunks.h"

#include <stdlib.h>

static size_t piece; /* bytes: the size of a new chunk; under chunks_lock */

static void set_piece(size_t largest)
{
	lock_take(&chunks_lock);
	piece = largest > piece ? largest : piece;
	lock_give(&chunks_lock);
}

static size_t chunk_size(void)
{
	size_t size;

	lock_take(&chunks_lock);
	size = (piece + CHUNK_UNIT - 1) / CHUNK_UNIT * CHUNK_UNIT;
	lock_give(&chunks_lock);
	return size;
}

/* Adds a chunk, or requests one from the daemon (LATER). */
static enum store_answer add_or_request(void)
{
	size_t size = chunk_size();

	if (node_chunk_request(size))
		return STORE_LATER;
	return chunk_add(size) ? STORE_READY : STORE_NONE;
}

static uint64_t grow(uint64_t bytes)
{
	uint64_t have;

	do {
		lock_take(&chunks_lock);
		have = chunks_free() + node_chunks_requested();
		lock_give(&chunks_lock);
	} while (have < bytes && add_or_request() != STORE_NONE);
	return have;
}

static void expect(uint64_t bytes)
{
	chunks_hurry(true);
	grow(bytes);
	chunks_touch();
}

/* Requests memory from the daemon only: the job's own is not used before it is needed. */
static void keep_total(uint64_t bytes)
{
	size_t size = chunk_size();
	uint64_t have, requested;

	do {
		lock_take(&chunks_lock);
		requested = node_chunks_requested();
		have = chunks_bytes() + requested;
		lock_give(&chunks_lock);
		if (!requested && !chunks_untouched())
			chunks_hurry(false); /* there is nothing to hurry for */
	} while (size && have < bytes && node_chunk_request(size));
}

/* -- making chunks ready ------------------------------------------------------------------ */

/* The caller holds chunks_lock. */
static enum store_answer make_ready(struct chunk *chunk)
{
	if (!chunks_being_touched())
		chunk_touch(chunk);
	if (atomic_load(&chunk->untouched))
		return STORE_LATER;
	if (chunk_pin(chunk))
		return STORE_READY;
	chunk->refused = true;
	/* The program or other processes may need its memory. But the driver waits for all work
	 * before it unregisters any, so what is registered goes back when there is none. */
	if (!chunk_pinned_any(chunk) && chunk->n_free == chunk->n && !chunks_being_touched())
		chunk_end(chunk);
	return STORE_NONE;
}

/* The caller holds chunks_lock. A touched chunk that is not pinned, or NULL. A chunk that has lost
 * its pins is pinned again when it is used. */
static struct chunk *first_unpinned(void)
{
	struct chunk *chunk = chunks;

	while (chunk && (chunk_pinned(chunk) || chunk->lost_pins || atomic_load(&chunk->untouched)))
		chunk = chunk->next;
	return chunk;
}

static enum store_answer pin_some(void)
{
	enum store_answer answer;
	struct chunk *chunk;

	if (!chunks_hurried())
		chunks_touch();
	lock_take(&chunks_lock);
	answer = chunks_being_touched() || node_chunks_requested() ? STORE_LATER : STORE_NONE;
	chunk = first_unpinned();
	if (chunk && (chunks_hurried() ? chunk_pin(chunk) : chunk_pin_some(chunk)))
		answer = STORE_READY;
	lock_give(&chunks_lock);
	return answer;
}

/* In a hurry chunks_touch() starts no threads for a small amount. When nothing else is left to do,
 * that amount is touched without hurry, by one thread. */
static enum store_answer prepare(void)
{
	enum store_answer answer = pin_some();

	if (answer != STORE_NONE || !chunks_hurried())
		return answer;
	chunks_hurry(false);
	return pin_some();
}

/* The caller holds chunks_lock, which is given up for a moment. READY: n units are ready. */
static enum store_answer make_units_ready(size_t n)
{
	enum store_answer answer = STORE_READY;
	struct chunk *chunk;

	while (answer == STORE_READY && units_ready() < n) {
		chunk = units_first_unready();
		if (chunk) {
			answer = make_ready(chunk);
		} else if (node_chunks_requested()) {
			answer = STORE_LATER;
		} else {
			lock_give(&chunks_lock);
			answer = add_or_request();
			lock_take(&chunks_lock);
		}
	}
	return answer;
}

/* -- the store's functions ---------------------------------------------------------------- */

static enum store_answer take(size_t size, struct copy **out)
{
	size_t n = (size + CHUNK_UNIT - 1) / CHUNK_UNIT;
	enum store_answer answer;

	lock_take(&chunks_lock);
	answer = make_units_ready(n);
	if (answer == STORE_READY) {
		*out = units_take(size);
		if (!*out)
			answer = STORE_NONE;
		else
			(*out)->store = &pinned_store;
	}
	lock_give(&chunks_lock);
	return answer;
}

static void give(struct copy *copy)
{
	lock_take(&chunks_lock);
	units_give(copy);
	lock_give(&chunks_lock);
	free(copy);
}

static void pin(const struct part *part)
{
	lock_take(&chunks_lock);
	if (chunks_lost_pins())
		chunk_pin_at(part->at);
	lock_give(&chunks_lock);
}

static uint64_t ready(void)
{
	uint64_t bytes;

	lock_take(&chunks_lock);
	bytes = units_ready() * CHUNK_UNIT;
	lock_give(&chunks_lock);
	return bytes;
}

/* The caller holds chunks_lock. An unused chunk which the driver has refused, or without which the
 * store still has `keep` bytes, or NULL. */
static struct chunk *superfluous(uint64_t keep)
{
	struct chunk *empty = NULL;
	uint64_t bytes = 0;

	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next) {
		bytes += chunk->size;
		if (chunk->n_free == chunk->n && !(empty && empty->refused))
			empty = chunk;
	}
	if (!empty || chunks_being_touched())
		return NULL;
	return empty->refused || bytes >= keep + empty->size ? empty : NULL;
}

static bool excess(uint64_t keep)
{
	bool excess;

	lock_take(&chunks_lock);
	excess = superfluous(keep) != NULL;
	lock_give(&chunks_lock);
	return excess;
}

/* Ends one chunk only, since that takes a while. */
static void trim(uint64_t keep)
{
	struct chunk *chunk;

	lock_take(&chunks_lock);
	chunk = superfluous(keep);
	if (chunk)
		chunk_end(chunk);
	lock_give(&chunks_lock);
}

const struct store pinned_store = {
    .take = take,
    .give = give,
    .pin = pin,
    .grow = grow,
    .expect = expect,
    .keep_total = keep_total,
    .prepare = prepare,
    .ready = ready,
    .excess = excess,
    .trim = trim,
    .set_piece = set_piece,
    .context_ends = chunks_context_ends,
};

const struct store *swap_store = &pinned_store;
