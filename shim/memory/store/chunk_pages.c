/* chunk_pages.c: makes chunks ready: threads of our own touch them, so that the kernel makes their
 * pages, and the driver registers them, slice by slice.
 *
 * The driver registers 10 to 50 GiB in a second. The calling thread does nothing else meanwhile:
 * 32 MiB take up to 3 ms.
 */
#include "memory/store/chunk_pages.h"

#include "base/fork.h"
#include "base/process.h"
#include "base/threads.h"
#include "driver/lookup.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* of Linux 5.14; glibc before 2.35 does not name it */
#endif
#define MOST_HELPERS 8
#define HELPER_STACK (64 * 1024)
#define PAGE 4096
/* In a hurry no threads are started for less than this: the client thread touches it. */
#define ALONE_BYTES (UINT64_C(32) << 20)
/* So many are registered in one step where a slice is smaller. */
#define SOME_UNITS ((UINT64_C(32) << 20) / CHUNK_UNIT)

static atomic_int helpers;      /* threads that touch */
static atomic_bool no_populate; /* this kernel does not know MADV_POPULATE_WRITE */
static atomic_bool hurried;
static size_t n_lost_pins; /* chunks with `lost_pins`; under chunks_lock */

/* -- touching ---------------------------------------------------------------------------- */

static void write_to_pages(volatile char *unit)
{
	for (size_t at = 0; at < CHUNK_UNIT; at += PAGE)
		unit[at] = 0;
}

/* An error other than EINVAL is ignored: the kernel has no pages then, and registering the chunk
 * with the driver fails. */
static void touch_unit(char *unit)
{
	int saved_errno = errno;

	if (!atomic_load(&no_populate) && madvise(unit, CHUNK_UNIT, MADV_POPULATE_WRITE))
		atomic_store(&no_populate, errno == EINVAL);
	if (atomic_load(&no_populate))
		write_to_pages(unit);
	errno = saved_errno;
}

void chunk_touch(struct chunk *chunk)
{
	size_t units = chunk->size / CHUNK_UNIT, i;

	while ((i = atomic_fetch_add(&chunk->next_touch, 1)) < units) {
		touch_unit(chunk->base + i * CHUNK_UNIT);
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

/* Processors that this thread may run on. */
static int cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
}

/* Starts helpers until so many run. Under a debugger a thread may have ended before the call that
 * starts it returns. */
static void start_helpers(int wanted)
{
	for (int missing = wanted - atomic_load(&helpers); missing > 0; missing--) {
		atomic_fetch_add(&helpers, 1);
		if (!thread_start(help, HELPER_STACK)) {
			atomic_fetch_sub(&helpers, 1);
			break;
		}
	}
}

void chunks_hurry(bool hurry)
{
	atomic_store(&hurried, hurry);
}

bool chunks_hurried(void)
{
	return atomic_load(&hurried);
}

void chunks_touch(void)
{
	uint64_t bytes = chunks_untouched();

	if (chunks_hurried() && bytes >= ALONE_BYTES)
		start_helpers(cpus() < MOST_HELPERS ? cpus() : MOST_HELPERS);
	else if (!chunks_hurried() && bytes)
		start_helpers(1);
}

bool chunks_being_touched(void)
{
	return atomic_load(&helpers) > 0;
}

/* -- pins -------------------------------------------------------------------------------- */

static void set_lost_pins(struct chunk *chunk, bool lost)
{
	n_lost_pins += lost;
	n_lost_pins -= chunk->lost_pins;
	chunk->lost_pins = lost;
}

static bool pin_slice(struct chunk *chunk, size_t slice)
{
	size_t first = slice * chunk_slice(chunk), left = chunk->n - first;
	size_t n = left < chunk_slice(chunk) ? left : chunk_slice(chunk);
	CUcontext context = NULL;

	if (chunk->contexts[slice])
		return true;
	if (!REAL(cuMemHostRegister_v2) || REAL(cuCtxGetCurrent)(&context) || !context ||
	    REAL(cuMemHostRegister_v2)(chunk->base + first * CHUNK_UNIT, n * CHUNK_UNIT,
	                               CU_MEMHOSTREGISTER_PORTABLE))
		return false;
	chunk->contexts[slice] = context;
	if (chunk_pinned(chunk)) {
		set_lost_pins(chunk, false);
		chunk->refused = false;
	}
	return true;
}

bool chunk_pin(struct chunk *chunk)
{
	while (!chunk_pinned(chunk))
		if (!pin_slice(chunk, chunk_next_slice(chunk)))
			return false;
	return true;
}

bool chunk_pin_some(struct chunk *chunk)
{
	size_t units = 0;

	for (; !units || (units + chunk_slice(chunk) <= SOME_UNITS && !chunk_pinned(chunk));
	     units += chunk_slice(chunk))
		if (!pin_slice(chunk, chunk_next_slice(chunk)))
			return false;
	return true;
}

void chunk_pin_at(const char *at)
{
	struct chunk *chunk = chunk_of(at);

	if (chunk)
		pin_slice(chunk, chunk_slice_of(chunk, at));
}

static void unpin(struct chunk *chunk, size_t slice)
{
	REAL(cuMemHostUnregister)(chunk->base + slice * chunk_slice(chunk) * CHUNK_UNIT);
	chunk->contexts[slice] = NULL;
}

static void unpin_of(struct chunk *chunk, CUcontext context)
{
	for (size_t slice = 0; slice < CHUNK_SLICES; slice++) {
		if (chunk->contexts[slice] == context) {
			unpin(chunk, slice);
			set_lost_pins(chunk, true);
		}
	}
}

void chunks_context_ends(CUcontext context)
{
	lock_take(&chunks_lock);
	for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
		unpin_of(chunk, context);
	lock_give(&chunks_lock);
}

bool chunks_lost_pins(void)
{
	return n_lost_pins > 0;
}

void chunk_unpin(struct chunk *chunk, unsigned int slices)
{
	for (size_t slice = 0; slice < CHUNK_SLICES; slice++)
		if (chunk->contexts[slice] && slices >> slice & 1)
			unpin(chunk, slice);
	set_lost_pins(chunk, true);
}

void chunk_end(struct chunk *chunk)
{
	chunk_leave(chunk);
	chunk_unpin(chunk, CHUNK_ALL);
	set_lost_pins(chunk, false);
	munmap(chunk->base, chunk->size);
	if (chunk->unmapped)
		chunk->unmapped(chunk);
	free(chunk);
}

static void in_child(void)
{
	atomic_store(&helpers, 0);
	atomic_store(&hurried, false);
	n_lost_pins = 0; /* the chunks are the parent's */
}
FORK_WATCH(in_child);
