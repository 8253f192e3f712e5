/* store_pinned.c: the store of copies in pinned host memory, which the daemon lends or, where it
 * has none, the process allocates.
 *
 * A copy takes whole units of chunks: in a row where so many are free in a row, else wherever units
 * are free. So the store never has more memory than it needs, except for a part of one chunk. A
 * forked child has no chunks.
 */
#include "base/locks.h"
#include "base/runs.h"
#include "memory/swap/chunks.h"
#include "memory/swap/node_chunks.h"
#include "memory/swap/pins.h"
#include "memory/swap/store.h"
#include "memory/swap/touching.h"

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

/* -- units; the caller holds chunks_lock -------------------------------------------------- */

/* Can copies be made in the chunk's units at once? */
static bool is_ready(const struct chunk *chunk)
{
	return chunk_pinned(chunk) && !atomic_load(&chunk->untouched);
}

static size_t n_ready_units(void)
{
	size_t n = 0;

	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
		n += is_ready(chunk) ? chunk->n_free : 0;
	return n;
}

/* A chunk with free units that is not ready, or NULL. */
static struct chunk *first_unready(void)
{
	struct chunk *chunk = chunks;

	while (chunk && (is_ready(chunk) || !chunk->n_free))
		chunk = chunk->next;
	return chunk;
}

static enum store_answer make_ready(struct chunk *chunk)
{
	if (!chunks_being_touched())
		chunk_touch(chunk);
	if (atomic_load(&chunk->untouched))
		return STORE_LATER;
	if (chunk_pin(chunk))
		return STORE_READY;
	if (chunk->n_free == chunk->n && !chunks_being_touched())
		chunk_end(chunk); /* the program or other processes may need its memory */
	return STORE_NONE;
}

/* Adds units in a row to the copy, as one part for each slice that they lie in. */
static void add_parts(struct copy *copy, struct chunk *chunk, size_t first, size_t n)
{
	size_t slice = chunk_slice(chunk);

	run_set(chunk->used, first, n, true);
	chunk->n_free -= n;
	for (size_t end = first + n, to; first < end; first = to) {
		to = (first / slice + 1) * slice;
		to = to < end ? to : end;
		copy->parts[copy->n++] =
		    (struct part){chunk->base + first * CHUNK_UNIT, (to - first) * CHUNK_UNIT};
	}
}

/* Adds free units of the chunk to the copy, at most so many. Returns how many. */
static size_t take_from(struct copy *copy, struct chunk *chunk, size_t most)
{
	size_t taken = 0;

	for (size_t first = 0, n; first < chunk->n && taken < most; first += n + 1) {
		for (n = 0; first + n < chunk->n && taken + n < most; n++)
			if (run_bit(chunk->used, first + n))
				break;
		if (n)
			add_parts(copy, chunk, first, n);
		taken += n;
	}
	return taken;
}

/* Makes a copy of n ready units, of which there are enough. Returns NULL if malloc() fails. */
static struct copy *gather(size_t n)
{
	struct copy *copy = malloc(sizeof(*copy) + n * sizeof(copy->parts[0]));
	struct chunk *chunk;

	if (!copy)
		return NULL;
	copy->store = &pinned_store;
	copy->n = 0;
	for (chunk = chunks; chunk; chunk = chunk->next) {
		size_t first = is_ready(chunk) ? run_find(chunk->used, chunk->n, n) : chunk->n;

		if (first < chunk->n) {
			add_parts(copy, chunk, first, n);
			return copy;
		}
	}
	for (chunk = chunks; n; chunk = chunk->next)
		if (is_ready(chunk))
			n -= take_from(copy, chunk, n);
	return copy;
}

/* -- making chunks ready ------------------------------------------------------------------ */

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
	if (chunk && (chunks_hurried() ? chunk_pin(chunk) : chunk_pin_slice(chunk)))
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

	while (answer == STORE_READY && n_ready_units() < n) {
		chunk = first_unready();
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
		*out = gather(n);
		if (!*out)
			answer = STORE_NONE;
		else /* the segment may need only a part of the last unit */
			(*out)->parts[(*out)->n - 1].size -= n * CHUNK_UNIT - size;
	}
	lock_give(&chunks_lock);
	return answer;
}

static void give(struct copy *copy)
{
	lock_take(&chunks_lock);
	for (unsigned int i = 0; i < copy->n; i++) {
		struct part part = copy->parts[i];
		struct chunk *chunk = chunk_of(part.at);
		size_t n = (part.size + CHUNK_UNIT - 1) / CHUNK_UNIT;

		if (!chunk)
			continue;
		run_set(chunk->used, (size_t)(part.at - chunk->base) / CHUNK_UNIT, n, false);
		chunk->n_free += n;
	}
	lock_give(&chunks_lock);
	free(copy);
}

static void pin(const struct copy *copy)
{
	lock_take(&chunks_lock);
	for (unsigned int i = 0; chunks_lost_pins() && i < copy->n; i++)
		chunk_pin(chunk_of(copy->parts[i].at));
	lock_give(&chunks_lock);
}

/* The caller holds chunks_lock. An unused chunk without which the store still has `keep` bytes, or
 * NULL. */
static struct chunk *superfluous(uint64_t keep)
{
	struct chunk *empty = NULL;
	uint64_t bytes = 0;

	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next) {
		bytes += chunk->size;
		if (chunk->n_free == chunk->n)
			empty = chunk;
	}
	return empty && bytes >= keep + empty->size && !chunks_being_touched() ? empty : NULL;
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
    .excess = excess,
    .trim = trim,
    .set_piece = set_piece,
    .context_ends = chunks_context_ends,
};
