/* arena.c: pinned host memory for the bytes of segments.
 *
 * It comes in chunks that are touched by several threads at once and then
 * registered with the driver; that costs, so they are kept for the next time.
 * A segment's bytes are whole units, in one run of a chunk where there is one, else
 * wherever units are free: so there is never more host memory than is needed, but
 * for a part of one chunk. A forked child has none.
 */
#include "base/fork.h"
#include "base/locks.h"
#include "base/process.h"
#include "base/runs.h"
#include "driver/lookup.h"
#include "memory/swap/swap.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HELPERS 8
#define HELPER_STACK (64 * 1024)
#define ALONE_BYTES (UINT64_C(32) << 20) /* no helpers for so little */
#define PAGE 4096
#define HUGE_PAGE (UINT64_C(2) << 20)
#define UNIT HUGE_PAGE
#define SPARE (UINT64_C(16) << 20)

struct chunk {
	struct chunk *next;
	char *base;
	size_t size;
	CUcontext context; /* that it was registered in; NULL: not registered */
	bool undone;
	atomic_size_t next_touch, untouched; /* slices of HUGE_PAGE */
	size_t n, n_free;                    /* units */
	uint64_t used[];
};

static struct chunk *chunks; /* the newest first */
static size_t piece;         /* a chunk is as large */
static size_t n_undone;      /* chunks whose registration ended with its context */
static atomic_int helpers;
static struct lock lock = LOCK(LOCK_ARENA);

void arena_shape(size_t its_piece)
{
	lock_take(&lock);
	piece = its_piece > piece ? its_piece : piece;
	lock_give(&lock);
}

/* -- touching ------------------------------------------------------------------ */

static void touch(struct chunk *chunk)
{
	size_t slices = chunk->size / HUGE_PAGE, i;

	while ((i = atomic_fetch_add(&chunk->next_touch, 1)) < slices) {
		volatile char *slice = chunk->base + i * HUGE_PAGE;

		for (size_t at = 0; at < HUGE_PAGE; at += PAGE)
			slice[at] = 0;
		atomic_fetch_sub(&chunk->untouched, 1);
	}
}

static struct chunk *first_untouched(void)
{
	struct chunk *chunk;

	lock_take(&lock);
	for (chunk = chunks; chunk; chunk = chunk->next)
		if (atomic_load(&chunk->next_touch) < chunk->size / HUGE_PAGE)
			break;
	lock_give(&lock);
	return chunk;
}

/* No chunk ends while a helper runs. */
static void *help(void *argument)
{
	struct chunk *chunk;

	(void)argument;
	while (!atomic_load(&process_ends) && (chunk = first_untouched()))
		touch(chunk);
	atomic_fetch_sub(&helpers, 1);
	return NULL;
}

static int cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
}

static void start_helpers(void)
{
	int most = cpus() < HELPERS ? cpus() : HELPERS;
	pthread_attr_t attributes;
	sigset_t all, old;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, HELPER_STACK);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (atomic_load(&helpers) < most) {
		atomic_fetch_add(&helpers, 1);
		if (pthread_create(&thread, &attributes, help, NULL)) {
			atomic_fetch_sub(&helpers, 1);
			break;
		}
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
}

/* -- chunks ---------------------------------------------------------------------- */

/* Whole huge pages; a forked child shall not copy them. Where the process may not have
 * much more, some is left to the program and the driver. */
static char *map(size_t size)
{
	char *at =
	    mmap(NULL, size + SPARE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t skip;

	if (at == MAP_FAILED)
		return NULL;
	skip = (HUGE_PAGE - (uintptr_t)at % HUGE_PAGE) % HUGE_PAGE;
	if (skip)
		munmap(at, skip);
	munmap(at + skip + size, SPARE - skip);
	at += skip;
	madvise(at, size, MADV_HUGEPAGE);
	madvise(at, size, MADV_DONTFORK);
	return at;
}

/* What no page has been given for yet. */
static uint64_t untouched_bytes(void)
{
	uint64_t bytes = 0;

	lock_take(&lock);
	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
		bytes += atomic_load(&chunk->untouched) * HUGE_PAGE;
	lock_give(&lock);
	return bytes;
}

static bool add_chunk(void)
{
	size_t size = (piece + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, n = size / UNIT;
	struct chunk *chunk;

	if (!host_has_room(untouched_bytes() + size))
		return false;
	chunk = calloc(1, sizeof(*chunk) + run_words(n) * sizeof(uint64_t));
	if (chunk)
		chunk->base = map(size);
	if (!chunk || !chunk->base) {
		free(chunk);
		return false;
	}
	chunk->size = size;
	chunk->n = chunk->n_free = n;
	atomic_store(&chunk->untouched, size / HUGE_PAGE);
	lock_take(&lock);
	chunk->next = chunks;
	chunks = chunk;
	lock_give(&lock);
	return true;
}

/* The lock is held. */
static uint64_t free_bytes(void)
{
	uint64_t bytes = 0;

	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
		bytes += chunk->n_free * UNIT;
	return bytes;
}

uint64_t arena_grow(uint64_t bytes)
{
	uint64_t have;

	do {
		lock_take(&lock);
		have = free_bytes();
		lock_give(&lock);
	} while (have < bytes && add_chunk());
	return have;
}

void arena_expect(uint64_t bytes)
{
	arena_grow(bytes);
	if (untouched_bytes() >= ALONE_BYTES)
		start_helpers();
}

/* Pinned for every context. Without a current one there is nothing to register with. */
static bool register_chunk(struct chunk *chunk)
{
	CUcontext context = NULL;

	if (chunk->context)
		return true;
	if (!REAL(cuMemHostRegister_v2) || REAL(cuCtxGetCurrent)(&context) || !context ||
	    REAL(cuMemHostRegister_v2)(chunk->base, chunk->size, CU_MEMHOSTREGISTER_PORTABLE))
		return false;
	chunk->context = context;
	n_undone -= chunk->undone;
	chunk->undone = false;
	return true;
}

static struct chunk *chunk_of(const void *at)
{
	struct chunk *chunk = chunks;

	while (chunk &&
	       !((const char *)at >= chunk->base && (const char *)at < chunk->base + chunk->size))
		chunk = chunk->next;
	return chunk;
}

static void end_chunk(struct chunk *chunk)
{
	for (struct chunk **at = &chunks; *at; at = &(*at)->next) {
		if (*at == chunk) {
			*at = chunk->next;
			break;
		}
	}
	if (chunk->context)
		REAL(cuMemHostUnregister)(chunk->base);
	n_undone -= chunk->undone;
	munmap(chunk->base, chunk->size);
	free(chunk);
}

/* -- taking (the lock is held) ---------------------------------------------------- */

static bool ready(const struct chunk *chunk)
{
	return chunk->context && !atomic_load(&chunk->untouched);
}

static size_t n_ready(void)
{
	size_t n = 0;

	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
		n += ready(chunk) ? chunk->n_free : 0;
	return n;
}

/* With free units, which cannot be used yet. */
static struct chunk *first_unready(void)
{
	struct chunk *chunk = chunks;

	while (chunk && (ready(chunk) || !chunk->n_free))
		chunk = chunk->next;
	return chunk;
}

static enum arena_answer make_ready(struct chunk *chunk)
{
	if (!atomic_load(&helpers))
		touch(chunk);
	if (atomic_load(&chunk->untouched))
		return ARENA_NOT_YET;
	if (register_chunk(chunk))
		return ARENA_READY;
	if (chunk->n_free == chunk->n && !atomic_load(&helpers))
		end_chunk(chunk); /* of memory that cannot be pinned others may have more use */
	return ARENA_NONE;
}

static void add_part(struct copy *copy, struct chunk *chunk, size_t first, size_t n)
{
	run_set(chunk->used, first, n, true);
	chunk->n_free -= n;
	copy->parts[copy->n++] = (struct part){chunk->base + first * UNIT, n * UNIT};
}

/* So many units at most from the chunk, in as few parts as there are gaps; how many. */
static size_t take_from(struct copy *copy, struct chunk *chunk, size_t most)
{
	size_t taken = 0;

	for (size_t first = 0, n; first < chunk->n && taken < most; first += n + 1) {
		for (n = 0; first + n < chunk->n && taken + n < most; n++)
			if (run_bit(chunk->used, first + n))
				break;
		if (n)
			add_part(copy, chunk, first, n);
		taken += n;
	}
	return taken;
}

/* So many units that are free and ready: in a row, if there are so many in a row. */
static struct copy *gather(size_t n)
{
	struct copy *copy = malloc(sizeof(*copy) + n * sizeof(copy->parts[0]));
	struct chunk *chunk;

	if (!copy)
		return NULL;
	copy->n = 0;
	for (chunk = chunks; chunk; chunk = chunk->next) {
		size_t first = ready(chunk) ? run_find(chunk->used, chunk->n, n) : chunk->n;

		if (first < chunk->n) {
			add_part(copy, chunk, first, n);
			return copy;
		}
	}
	for (chunk = chunks; n; chunk = chunk->next)
		if (ready(chunk))
			n -= take_from(copy, chunk, n);
	return copy;
}

/* -- for segments ------------------------------------------------------------------ */

bool arena_prepare(void)
{
	struct chunk *chunk;
	bool more = atomic_load(&helpers) > 0;

	lock_take(&lock);
	for (chunk = chunks; chunk; chunk = chunk->next)
		if (!chunk->context && !chunk->undone && !atomic_load(&chunk->untouched))
			break;
	if (chunk)
		more = register_chunk(chunk);
	lock_give(&lock);
	return more;
}

enum arena_answer arena_take(size_t size, struct copy **out)
{
	size_t n = (size + UNIT - 1) / UNIT;
	enum arena_answer answer = ARENA_READY;
	struct chunk *chunk;

	lock_take(&lock);
	while (answer == ARENA_READY && n_ready() < n) {
		chunk = first_unready();
		if (chunk) {
			answer = make_ready(chunk);
			continue;
		}
		lock_give(&lock);
		if (!add_chunk())
			return ARENA_NONE;
		lock_take(&lock);
	}
	if (answer == ARENA_READY) {
		*out = gather(n);
		if (!*out)
			answer = ARENA_NONE;
		else /* the last unit may be longer than what it has */
			(*out)->parts[(*out)->n - 1].size -= n * UNIT - size;
	}
	lock_give(&lock);
	return answer;
}

void arena_give(struct copy *copy)
{
	lock_take(&lock);
	for (unsigned int i = 0; i < copy->n; i++) {
		struct part part = copy->parts[i];
		struct chunk *chunk = chunk_of(part.at);
		size_t n = (part.size + UNIT - 1) / UNIT;

		if (!chunk)
			continue;
		run_set(chunk->used, (size_t)(part.at - chunk->base) / UNIT, n, false);
		chunk->n_free += n;
	}
	lock_give(&lock);
	free(copy);
}

void arena_pin(const struct copy *copy)
{
	lock_take(&lock);
	for (unsigned int i = 0; n_undone && i < copy->n; i++)
		register_chunk(chunk_of(copy->parts[i].at));
	lock_give(&lock);
}

/* The lock is held. A chunk that nobody has, if there is more than so much and one chunk. */
static struct chunk *superfluous(uint64_t keep)
{
	struct chunk *empty = NULL;
	uint64_t bytes = 0;

	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next) {
		bytes += chunk->size;
		if (chunk->n_free == chunk->n)
			empty = chunk;
	}
	return empty && bytes >= keep + empty->size && !atomic_load(&helpers) ? empty : NULL;
}

bool arena_excess(uint64_t keep)
{
	bool excess;

	lock_take(&lock);
	excess = superfluous(keep) != NULL;
	lock_give(&lock);
	return excess;
}

void arena_trim(uint64_t keep)
{
	struct chunk *chunk;

	lock_take(&lock);
	while ((chunk = superfluous(keep)))
		end_chunk(chunk);
	lock_give(&lock);
}

/* What was registered in it is not any more. */
void arena_context_ends(CUcontext context)
{
	lock_take(&lock);
	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next) {
		if (chunk->context == context) {
			REAL(cuMemHostUnregister)(chunk->base);
			chunk->context = NULL;
			chunk->undone = true;
			n_undone++;
		}
	}
	lock_give(&lock);
}

static void in_child(void)
{
	lock_after_fork(&lock);
	n_undone = 0;
	chunks = NULL; /* the parent's; they are not mapped here */
	atomic_store(&helpers, 0);
}
FORK_WATCH(in_child);
