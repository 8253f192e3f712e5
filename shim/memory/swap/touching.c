/* touching.c: touches new chunks, so that the kernel makes their pages. */
#include "memory/swap/touching.h"

#include "base/fork.h"
#include "base/process.h"
#include "base/threads.h"

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

static atomic_int helpers;      /* threads that touch */
static atomic_bool no_populate; /* this kernel does not know MADV_POPULATE_WRITE */
static atomic_bool hurried;

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

/* Starts helpers until so many run. */
static void start_helpers(int wanted)
{
	while (atomic_load(&helpers) < wanted) {
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

static void in_child(void)
{
	atomic_store(&helpers, 0);
	atomic_store(&hurried, false);
}
FORK_WATCH(in_child);
