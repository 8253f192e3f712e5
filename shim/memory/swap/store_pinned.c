/* store_pinned.c: copies in pinned memory: the node's where it has some for them, else this
 * process' own.
 *
 * A segment's bytes are whole units, in one run of a chunk where there is one, else
 * wherever units are free: so there is never more host memory than is needed, but
 * for a part of one chunk. A forked child has none.
 */
#include "base/locks.h"
#include "base/runs.h"
#include "memory/swap/chunks.h"
#include "memory/swap/node_chunks.h"
#include "memory/swap/pins.h"
#include "memory/swap/store.h"
#include "memory/swap/touching.h"

#include <stdlib.h>

static size_t piece; /* the size of a new chunk */

static void shape(size_t largest)
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

/* One more chunk, now or soon. */
static enum store_answer more(void)
{
	size_t size = chunk_size();

	if (node_chunk_ask(size))
		return STORE_LATER;
	return chunk_add(size) ? STORE_READY : STORE_NONE;
}

static uint64_t grow(uint64_t bytes)
{
	uint64_t have;

	do {
		lock_take(&chunks_lock);
		have = chunks_free() + node_chunks_coming();
		lock_give(&chunks_lock);
	} while (have < bytes && more() != STORE_NONE);
	return have;
}

static void expect(uint64_t bytes)
{
	chunks_hurry(true);
	grow(bytes);
	chunks_touch();
}

/* Of the node's memory alone: the job's own is not taken without need. */
static void ahead(uint64_t bytes)
{
	size_t size = chunk_size();
	uint64_t have, coming;

	do {
		lock_take(&chunks_lock);
		coming = node_chunks_coming();
		have = chunks_bytes() + coming;
		lock_give(&chunks_lock);
		if (!coming && !chunks_untouched())
			chunks_hurry(false); /* nobody waits for any */
	} while (size && have < bytes && node_chunk_ask(size));
}

/* -- taking; callers hold chunks_lock ---------------------------------------------------- */

static bool ready(const struct chunk *chunk)
{
	return chunk_pinned(chunk) && !atomic_load(&chunk->untouched);
}

static size_t n_ready(void)
{
	size_t n = 0;

	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
		n += ready(chunk) ? chunk->n_free : 0;
	return n;
}

/* A chunk with free units, which cannot be used yet. */
static struct chunk *first_unready(void)
{
	struct chunk *chunk = chunks;

	while (chunk && (ready(chunk) || !chunk->n_free))
		chunk = chunk->next;
	return chunk;
}

static enum store_answer make_ready(struct chunk *chunk)
{
	if (!chunks_helped())
		chunk_touch(chunk);
	if (atomic_load(&chunk->untouched))
		return STORE_LATER;
	if (chunk_pin(chunk))
		return STORE_READY;
	if (chunk->n_free == chunk->n && !chunks_helped())
		chunk_end(chunk); /* memory that cannot be pinned is of more use to others */
	return STORE_NONE;
}

/* Units in a row, as a part for each slice that they lie in. */
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

/* Takes free units of the chunk, and at most so many. Returns how many. */
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

/* Takes n units that are free and ready: in a row, where there are so many in a row. */
static struct copy *gather(size_t n)
{
	struct copy *copy = malloc(sizeof(*copy) + n * sizeof(copy->parts[0]));
	struct chunk *chunk;

	if (!copy)
		return NULL;
	copy->store = &pinned_store;
	copy->n = 0;
	for (chunk = chunks; chunk; chunk = chunk->next) {
		size_t first = ready(chunk) ? run_find(chunk->used, chunk->n, n) : chunk->n;

		if (first < chunk->n) {
			add_parts(copy, chunk, first, n);
			return copy;
		}
	}
	for (chunk = chunks; n; chunk = chunk->next)
		if (ready(chunk))
			n -= take_from(copy, chunk, n);
	return copy;
}

/* -- for segments ------------------------------------------------------------------ */

/* Caller holds chunks_lock. */
static struct chunk *first_unpinned(void)
{
	struct chunk *chunk = chunks;

	while (chunk && (chunk_pinned(chunk) || chunk->undone || atomic_load(&chunk->untouched)))
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
	answer = chunks_helped() || node_chunks_coming() ? STORE_LATER : STORE_NONE;
	chunk = first_unpinned();
	if (chunk && (chunks_hurried() ? chunk_pin(chunk) : chunk_pin_slice(chunk)))
		answer = STORE_READY;
	lock_give(&chunks_lock);
	return answer;
}

/* What is too little to hurry for is touched by one thread. */
static enum store_answer prepare(void)
{
	enum store_answer answer = pin_some();

	if (answer != STORE_NONE || !chunks_hurried())
		return answer;
	chunks_hurry(false);
	return pin_some();
}

/* Caller holds chunks_lock. Towards so many units that can be used at once. */
static enum store_answer make_units_ready(size_t n)
{
	enum store_answer answer = STORE_READY;
	struct chunk *chunk;

	while (answer == STORE_READY && n_ready() < n) {
		chunk = first_unready();
		if (chunk) {
			answer = make_ready(chunk);
		} else if (node_chunks_coming()) {
			answer = STORE_LATER;
		} else {
			lock_give(&chunks_lock);
			answer = more();
			lock_take(&chunks_lock);
		}
	}
	return answer;
}

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
		else /* the last unit may be longer than what it has */
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
	for (unsigned int i = 0; chunks_undone() && i < copy->n; i++)
		chunk_pin(chunk_of(copy->parts[i].at));
	lock_give(&chunks_lock);
}

/* Caller holds chunks_lock. A chunk that nobody has, if there is more than so much and one chunk.
 */
static struct chunk *superfluous(uint64_t keep)
{
	struct chunk *empty = NULL;
	uint64_t bytes = 0;

	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next) {
		bytes += chunk->size;
		if (chunk->n_free == chunk->n)
			empty = chunk;
	}
	return empty && bytes >= keep + empty->size && !chunks_helped() ? empty : NULL;
}

static bool excess(uint64_t keep)
{
	bool excess;

	lock_take(&chunks_lock);
	excess = superfluous(keep) != NULL;
	lock_give(&chunks_lock);
	return excess;
}

/* One chunk: that takes long enough. */
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
    .ahead = ahead,
    .prepare = prepare,
    .excess = excess,
    .trim = trim,
    .shape = shape,
    .context_ends = chunks_context_ends,
};
