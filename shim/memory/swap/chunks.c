/* chunks.c: host memory for copies, in chunks.
 *
 * Chunks are mapped here. Then their pages are touched (touching.c), and registered with the driver
 * (pins.c). All this takes long, so chunks are kept for the next eviction.
 */
#include "memory/swap/chunks.h"

#include "base/fork.h"
#include "base/runs.h"
#include "memory/swap/cgroup_memory.h"
#include "memory/swap/pins.h"

#include <stdlib.h>
#include <sys/mman.h>

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

void chunk_end(struct chunk *chunk)
{
	for (struct chunk **at = &chunks; *at; at = &(*at)->next) {
		if (*at == chunk) {
			*at = chunk->next;
			break;
		}
	}
	chunk_unpin(chunk);
	munmap(chunk->base, chunk->size);
	if (chunk->unmapped)
		chunk->unmapped(chunk);
	free(chunk);
}

void chunks_context_ends(CUcontext context)
{
	lock_take(&chunks_lock);
	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
		chunk_context_ends(chunk, context);
	lock_give(&chunks_lock);
}

static void in_child(void)
{
	lock_after_fork(&chunks_lock);
	chunks = NULL; /* they are the parent's, and not mapped here */
}
FORK_WATCH(in_child);
