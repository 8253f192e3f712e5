/* chunks.c: host memory for copies, in chunks, and the units of which copies are made: in a row
 * where so many are free in a row, else wherever units are free.
 *
 * To make a chunk ready takes long, so chunks are kept for the next eviction.
 */
#include "memory/store/chunks.h"

#include "base/fork.h"
#include "base/runs.h"
#include "memory/store/cgroup_memory.h"

#include <stdlib.h>
#include <sys/mman.h>

#define SMALLEST_SLICE ((UINT64_C(8) << 20) / CHUNK_UNIT) /* units */
/* A mapping is made so much larger at first that it contains an aligned one. */
#define SPARE (UINT64_C(16) << 20)

struct chunk *chunks;
struct lock chunks_lock = LOCK(LOCK_CHUNKS);

/* Maps anonymous memory (file -1) or a file, aligned to huge pages. A forked child does not get the
 * mapping. Returns NULL if that fails. */
static char *map(int file, size_t size)
{
	char *at = mmap(NULL, size + SPARE, PROT_READ | PROT_WRITE,
	                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int flags = MAP_FIXED | (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
	size_t skip;

	if (at == MAP_FAILED)
		return NULL;
	skip = (CHUNK_UNIT - (uintptr_t)at % CHUNK_UNIT) % CHUNK_UNIT;
	if (skip)
		munmap(at, skip);
	munmap(at + skip + size, SPARE - skip);
	at += skip;
	if (mmap(at, size, PROT_READ | PROT_WRITE, flags, file, 0) == MAP_FAILED) {
		munmap(at, size);
		return NULL;
	}
	madvise(at, size, MADV_HUGEPAGE);
	madvise(at, size, MADV_DONTFORK);
	return at;
}

uint64_t chunks_untouched(void)
{
	uint64_t bytes = 0;

	lock_take(&chunks_lock);
	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
		bytes += atomic_load(&chunk->untouched) * CHUNK_UNIT;
	lock_give(&chunks_lock);
	return bytes;
}

/* Returns NULL if the host has no memory for the chunk. */
static struct chunk *new_chunk(int file, size_t size)
{
	size_t n = size / CHUNK_UNIT;
	struct chunk *chunk = calloc(1, sizeof(*chunk) + run_words(n) * sizeof(uint64_t));

	if (chunk)
		chunk->base = map(file, size);
	if (!chunk || !chunk->base) {
		free(chunk);
		return NULL;
	}
	chunk->size = size;
	chunk->n = chunk->n_free = n;
	atomic_store(&chunk->untouched, n);
	return chunk;
}

/* The caller holds chunks_lock. */
static void enter(struct chunk *chunk)
{
	chunk->next = chunks;
	chunks = chunk;
}

bool chunk_add(size_t size)
{
	struct chunk *chunk = NULL;

	size = (size + CHUNK_UNIT - 1) / CHUNK_UNIT * CHUNK_UNIT;
	if (cgroup_has_memory(chunks_untouched() + size))
		chunk = new_chunk(-1, size);
	if (!chunk)
		return false;
	lock_take(&chunks_lock);
	enter(chunk);
	lock_give(&chunks_lock);
	return true;
}

struct chunk *chunk_map(int descriptor, size_t size)
{
	struct chunk *chunk = new_chunk(descriptor, size);

	if (chunk)
		enter(chunk);
	return chunk;
}

uint64_t chunks_free(void)
{
	uint64_t bytes = 0;

	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
		bytes += chunk->n_free * CHUNK_UNIT;
	return bytes;
}

uint64_t chunks_bytes(void)
{
	uint64_t bytes = 0;

	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
		bytes += chunk->size;
	return bytes;
}

struct chunk *chunk_of(const void *at)
{
	struct chunk *chunk = chunks;

	while (chunk &&
	       !((const char *)at >= chunk->base && (const char *)at < chunk->base + chunk->size))
		chunk = chunk->next;
	return chunk;
}

void chunk_leave(struct chunk *chunk)
{
	struct chunk **at = &chunks;

	while (*at != chunk)
		at = &(*at)->next;
	*at = chunk->next;
}

size_t chunk_slice(const struct chunk *chunk)
{
	size_t units = (chunk->n + CHUNK_SLICES - 1) / CHUNK_SLICES;

	return units > SMALLEST_SLICE ? units : SMALLEST_SLICE;
}

size_t chunk_slice_of(const struct chunk *chunk, const char *at)
{
	return (size_t)(at - chunk->base) / CHUNK_UNIT / chunk_slice(chunk);
}

size_t chunk_next_slice(const struct chunk *chunk)
{
	size_t slice = 0;

	while (slice * chunk_slice(chunk) < chunk->n && chunk->contexts[slice])
		slice++;
	return slice;
}

bool chunk_pinned(const struct chunk *chunk)
{
	return chunk_next_slice(chunk) * chunk_slice(chunk) >= chunk->n;
}

bool chunk_pinned_any(const struct chunk *chunk)
{
	for (int slice = 0; slice < CHUNK_SLICES; slice++)
		if (chunk->contexts[slice])
			return true;
	return false;
}

/* -- units --------------------------------------------------------------------------------- */

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

static void in_child(void)
{
	lock_after_fork(&chunks_lock);
	chunks = NULL; /* they are the parent's, and not mapped here */
}
FORK_WATCH(in_child);
