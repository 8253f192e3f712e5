/* table.c: the table of a chain's buffers. */
#include "table.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOKS 100

static void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

bool table_begin(struct chain_table *table, uint64_t limit, uint32_t keep_s)
{
	pthread_mutexattr_t kind;

	table->limit = limit;
	table->keep_ticks = keep_s;
	if (getrandom(table->id, sizeof(table->id), 0) != sizeof(table->id))
		return false;
	return !pthread_mutexattr_init(&kind) &&
	       !pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED) &&
	       !pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST) &&
	       !pthread_mutex_init(&table->lock, &kind);
}

/* The lock is held for less than a sleep and a wake-up take, so who finds it taken first looks
 * again a few times. */
void table_take(struct chain_table *table)
{
	int result = pthread_mutex_trylock(&table->lock);

	for (int i = 0; result == EBUSY && i < LOOKS; i++) {
		cpu_relax();
		result = pthread_mutex_trylock(&table->lock);
	}
	if (result == EBUSY)
		result = pthread_mutex_lock(&table->lock);
	if (result == EOWNERDEAD)
		pthread_mutex_consistent(&table->lock);
}

void table_give(struct chain_table *table)
{
	pthread_mutex_unlock(&table->lock);
}

void table_changed(struct chain_table *table)
{
	atomic_fetch_add(&table->changed, 1);
	if (atomic_load(&table->waiters) && atomic_exchange(&table->waiters, 0))
		syscall(SYS_futex, &table->changed, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void table_wait(struct chain_table *table, uint32_t seen, int ms)
{
	struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};

	atomic_store(&table->waiters, 1);
	syscall(SYS_futex, &table->changed, FUTEX_WAIT, seen, &time, NULL, 0);
}

bool buffer_is_held(const struct chain_buffer *buffer)
{
	for (int i = 0; i < CHAIN_MEMBERS; i++)
		if (buffer->held[i])
			return true;
	return false;
}

void buffer_settle(struct chain_buffer *buffer)
{
	if (buffer->state == BUFFER_USED && !buffer->flight && !buffer_is_held(buffer))
		buffer->state = BUFFER_FREE;
}

void buffer_end_flight(struct chain_buffer *buffer)
{
	buffer->flight = 0;
	buffer->putter = NO_MEMBER;
	buffer_settle(buffer);
}

struct chain_buffer *table_free_buffer(struct chain_table *table, uint64_t size, bool close)
{
	struct chain_buffer *best = NULL;

	for (uint32_t i = 0; i < table->top; i++) {
		struct chain_buffer *b = &table->buffers[i];

		if (b->state != BUFFER_FREE || b->room < size ||
		    (close && b->room / 2 >= size && b->room > CHAIN_UNIT))
			continue;
		if (!best || b->room < best->room)
			best = b;
	}
	return best;
}
