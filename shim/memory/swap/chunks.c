/* chunks.c: host memory in chunks, touched by several threads at once and then registered
 * with the driver. That costs, so they are kept for the next time. */
#include "memory/swap/chunks.h"

#include "base/fork.h"
#include "base/process.h"
#include "base/runs.h"
#include "driver/lookup.h"
#include "memory/swap/hostroom.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HELPERS 8
#define HELPER_STACK (64 * 1024)
#define PAGE 4096
#define SPARE (UINT64_C(16) << 20)
#define ALONE_BYTES (UINT64_C(32) << 20) /* no helpers for so little */

struct chunk *chunks;
struct lock chunks_lock = LOCK(LOCK_CHUNKS);
static size_t n_undone; /* chunks whose registration ended with its context */
static atomic_int helpers;

/* -- touching ------------------------------------------------------------------ */

void chunk_touch(struct chunk *chunk)
{
	size_t slices = chunk->size / CHUNK_UNIT, i;

	while ((i = atomic_fetch_add(&chunk->next_touch, 1)) < slices) {
		volatile char *slice = chunk->base + i * CHUNK_UNIT;

		for (size_t at = 0; at < CHUNK_UNIT; at += PAGE)
			slice[at] = 0;
		atomic_fetch_sub(&chunk->untouched, 1);
	}
}

static struct chunk *first_untouched(void)
{
	struct chunk *chunk;

	lock_take(&chunks_lock);
	for (chunk = chunks; chunk; chunk = chunk->next)
		if (atomic_load(&chunk->next_touch) < chunk->size / CHUNK_UNIT)
			break;
	lock_give(&chunks_lock);
	return chunk;
}

/* No chunk ends while a helper runs. */
static void *help(void *argument)
{
	struct chunk *chunk;

	(void)argument;
	while (!atomic_load(&process_ends) && (chunk = first_untouched()))
		chunk_touch(chunk);
	atomic_fetch_sub(&helpers, 1);
	return NULL;
}

static int cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
}

void chunks_start_helpers(void)
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

void chunks_touch_much(void)
{
	if (chunks_untouched() >= ALONE_BYTES)
		chunks_start_helpers();
}

bool chunks_helped(void)
{
	return atomic_load(&helpers) > 0;
}

/* -- making and ending ---------------------------------------------------------------- */

/* Whole huge pages of nothing, or of a file; a forked child shall not have them. */
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

/* The mapping of a new chunk; NULL: there is no memory for it. */
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

/* Caller holds chunks_lock. */
static void enter(struct chunk *chunk)
{
	chunk->next = chunks;
	chunks = chunk;
}

/* Where the process may not have much more, some is left to the program and the driver. */
bool chunk_add(size_t piece)
{
	size_t size = (piece + CHUNK_UNIT - 1) / CHUNK_UNIT * CHUNK_UNIT;
	struct chunk *chunk = host_has_room(chunks_untouched() + size) ? new_chunk(-1, size) : NULL;

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

/* Caller holds chunks_lock. */
uint64_t chunks_free(void)
{
	uint64_t bytes = 0;

	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
		bytes += chunk->n_free * CHUNK_UNIT;
	return bytes;
}

/* Without a current context there is nothing to register with. */
bool chunk_register(struct chunk *chunk)
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
	if (chunk->context)
		REAL(cuMemHostUnregister)(chunk->base);
	n_undone -= chunk->undone;
	munmap(chunk->base, chunk->size);
	if (chunk->unmapped)
		chunk->unmapped(chunk);
	free(chunk);
}

void chunks_context_ends(CUcontext context)
{
	lock_take(&chunks_lock);
	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next) {
		if (chunk->context == context) {
			REAL(cuMemHostUnregister)(chunk->base);
			chunk->context = NULL;
			chunk->undone = true;
			n_undone++;
		}
	}
	lock_give(&chunks_lock);
}

/* Caller holds chunks_lock. */
bool chunks_undone(void)
{
	return n_undone > 0;
}

static void in_child(void)
{
	lock_after_fork(&chunks_lock);
	n_undone = 0;
	chunks = NULL; /* the parent's; they are not mapped here */
	atomic_store(&helpers, 0);
}
FORK_WATCH(in_child);
