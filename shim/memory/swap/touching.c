/* touching.c: the pages of new chunks, made by several threads at once. */
#include "memory/swap/touching.h"

#include "base/fork.h"
#include "base/process.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* of Linux 5.14; glibc before 2.35 does not name it */
#endif
#define HELPERS 8
#define HELPER_STACK (64 * 1024)
#define PAGE 4096
#define ALONE_BYTES (UINT64_C(32) << 20) /* who hurries makes no threads for so little */

static atomic_int helpers;
static atomic_bool by_hand; /* this kernel does not know MADV_POPULATE_WRITE */
static atomic_bool hurried;

static void touch_by_hand(volatile char *unit)
{
	for (size_t at = 0; at < CHUNK_UNIT; at += PAGE)
		unit[at] = 0;
}

/* Where the kernel has no pages the driver will not register them either. */
static void touch_unit(char *unit)
{
	int saved_errno = errno;

	if (!atomic_load(&by_hand) && madvise(unit, CHUNK_UNIT, MADV_POPULATE_WRITE))
		atomic_store(&by_hand, errno == EINVAL);
	if (atomic_load(&by_hand))
		touch_by_hand(unit);
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

static int cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
}

static void start_helpers(int most)
{
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
		start_helpers(cpus() < HELPERS ? cpus() : HELPERS);
	else if (!chunks_hurried() && bytes)
		start_helpers(1);
}

bool chunks_helped(void)
{
	return atomic_load(&helpers) > 0;
}

static void in_child(void)
{
	atomic_store(&helpers, 0);
	atomic_store(&hurried, false);
}
FORK_WATCH(in_child);
