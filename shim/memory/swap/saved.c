/* saved.c: copies on the host are listed, and their memory is given up and taken again.
 *
 * No other thread unmaps chunks: those of the program that free memory only clear bits of units. So
 * what is listed stays mapped, and what has been freed meanwhile is saved for nothing.
 */
#include "memory/swap/saved.h"

#include "base/clock.h"
#include "base/runs.h"
#include "memory/store/chunk_pages.h"
#include "memory/store/chunks.h"
#include "memory/swap/lane.h"
#include "work/contexts.h"

#include <stdlib.h>
#include <sys/mman.h>

#define PAUSE_US 1000

static struct gl_saved saved;

/* Calls `take` for each row of units with bytes of copies. The caller holds chunks_lock. */
static void each_range(void (*take)(struct gl_range range, void *), void *data)
{
	for (const struct chunk *chunk = chunks; chunk; chunk = chunk->next) {
		for (size_t first = 0, end; first < chunk->n; first = end + 1) {
			for (end = first; end < chunk->n && run_bit(chunk->used, end);)
				end++;
			if (end > first)
				take((struct gl_range){(uintptr_t)chunk->base + first * CHUNK_UNIT,
				                       (end - first) * CHUNK_UNIT},
				     data);
		}
	}
}

static void count(struct gl_range range, void *data)
{
	(void)range;
	++*(size_t *)data;
}

static void add(struct gl_range range, void *data)
{
	struct gl_range **end = data;

	*(*end)++ = range;
}

struct gl_saved *saved_list(void)
{
	struct gl_range *ranges, *end;
	size_t n = 0;

	while (chunks_being_touched())
		pause_us(PAUSE_US);
	lock_take(&chunks_lock);
	each_range(count, &n);
	end = ranges = calloc(n ? n : 1, sizeof(*ranges));
	if (ranges)
		each_range(add, &end);
	lock_give(&chunks_lock);
	if (!ranges)
		return NULL;
	free((void *)(uintptr_t)saved.ranges);
	saved = (struct gl_saved){
	    .state = GL_SAVED_LISTED, .n = n, .ranges = (uint64_t)(uintptr_t)ranges};
	return &saved;
}

/* The addresses remain, without memory. The node's memory is given back. */
static void give(struct chunk *chunk)
{
	chunk_unpin(chunk, CHUNK_ALL);
	mmap(chunk->base, chunk->size, PROT_NONE,
	     MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (chunk->unmapped)
		chunk->unmapped(chunk);
	chunk->unmapped = NULL;
	chunk->number = 0;
}

static void give_in(CUcontext context, void *done)
{
	(void)context;
	lock_take(&chunks_lock);
	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
		give(chunk);
	lock_give(&chunks_lock);
	*(bool *)done = true;
}

void saved_give(void)
{
	bool done = false;

	for_each_lane(lane)
		if (lane->asked && !done)
			contexts_with(lane->device, NULL, give_in, &done);
	if (!done) /* without a context there are no pins */
		give_in(NULL, &done);
}

void saved_take(void)
{
	lock_take(&chunks_lock);
	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next) {
		mprotect(chunk->base, chunk->size, PROT_READ | PROT_WRITE);
		madvise(chunk->base, chunk->size, MADV_HUGEPAGE);
		madvise(chunk->base, chunk->size, MADV_DONTFORK);
	}
	lock_give(&chunks_lock);
}
