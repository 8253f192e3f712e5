/* chunk_units.c: the units of chunks, from which copies are made: in a row where so many are free
 * in a row, else wherever units are free. */
#include "memory/swap/chunk_units.h"

#include "base/runs.h"
#include "memory/swap/pins.h"

#include <stdlib.h>

static bool is_ready(const struct chunk *chunk)
{
	return chunk_pinned(chunk) && !atomic_load(&chunk->untouched);
}

size_t units_ready(void)
{
	size_t n = 0;

	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
		n += is_ready(chunk) ? chunk->n_free : 0;
	return n;
}

struct chunk *units_first_unready(void)
{
	struct chunk *chunk = chunks;

	while (chunk && (is_ready(chunk) || !chunk->n_free))
		chunk = chunk->next;
	return chunk;
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

/* Makes a copy of n ready units, of which there are enough. */
static struct copy *gather(size_t n)
{
	struct copy *copy = malloc(sizeof(*copy) + n * sizeof(copy->parts[0]));
	struct chunk *chunk;

	if (!copy)
		return NULL;
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

struct copy *units_take(size_t size)
{
	size_t n = (size + CHUNK_UNIT - 1) / CHUNK_UNIT;
	struct copy *copy = gather(n);

	if (copy) /* the segment may need only a part of the last unit */
		copy->parts[copy->n - 1].size -= n * CHUNK_UNIT - size;
	return copy;
}

void units_give(const struct copy *copy)
{
	for (unsigned int i = 0; i < copy->n; i++) {
		struct part part = copy->parts[i];
		struct chunk *chunk = chunk_of(part.at);
		size_t n = (part.size + CHUNK_UNIT - 1) / CHUNK_UNIT;

		if (!chunk)
			continue;
		run_set(chunk->used, (size_t)(part.at - chunk->base) / CHUNK_UNIT, n, false);
		chunk->n_free += n;
	}
}
