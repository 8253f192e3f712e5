/* kind_limit_cases.c: what every kind of memory promises about the limit of its job. */
#include "base/locks.h"
#include "kind_cases.h"
#include "memory/limit.h"
#include "memory/pools.h"

#include <pthread.h>

#define N_THREADS 8

/* The linker's names (--wrap). */
void __real_lock_give(struct lock *lock);
void __wrap_lock_give(struct lock *lock);

void limit_reached(void)
{
	CUdeviceptr pointers[8], more = 0;

	fake_rooms.limit = 32 * MIB;
	for (int i = 0; i < 8; i++)
		pointers[i] = allocate(kind, 4 * MIB);
	CHECK(memory_allocate(kind, &more, 4 * MIB, 0, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(memory_used(0) == 32 * MIB);
	OK(cuMemFree_v2(pointers[3]));
	pointers[3] = allocate(kind, 4 * MIB);
	for (int i = 0; i < 8; i++)
		OK(cuMemFree_v2(pointers[i]));
	check_empty();
}

void others_count(void)
{
	CUdeviceptr pointer;

	fake_rooms.limit = 32 * MIB;
	fake_rooms.others = 24 * MIB;
	CHECK(memory_allocate(kind, &pointer, 12 * MIB, 0, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree_v2(allocate(kind, 8 * MIB)));
	check_empty();
}

static atomic_uint successes;

static void *take_some(void *unused)
{
	CUdeviceptr pointer;

	(void)unused;
	for (int i = 0; i < 4; i++)
		if (!memory_allocate(kind, &pointer, 2 * MIB, 0, NULL))
			atomic_fetch_add(&successes, 1);
	return NULL;
}

/* N_THREADS threads together want twice as much as the limit. */
void limit_reached_by_several_threads(void)
{
	pthread_t threads[N_THREADS];

	fake_rooms.limit = (uint64_t)N_THREADS * 4 * MIB;
	for (int i = 0; i < N_THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, take_some, NULL));
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK(atomic_load(&successes) == N_THREADS * 2);
	CHECK(memory_used(0) == fake_rooms.limit);
	CHECK(total() == fake_rooms.limit);
}

static bool intrudes;
static int taken;

/* In place of lock_give(): whenever it has released the lock of the counted bytes, another thread
 * could come next, and once one does. */
void __wrap_lock_give(struct lock *lock)
{
	__real_lock_give(lock);
	if (lock->rank != LOCK_USED || !intrudes)
		return;
	intrudes = false;
	taken += !limit_take(0, 20 * MIB);
}

void limit_taken_between_check_and_count(void)
{
	fake_rooms.limit = 32 * MIB;
	intrudes = true;
	taken = !limit_take(0, 20 * MIB);
	CHECK(!intrudes);
	CHECK(taken == 1);
	CHECK(memory_used(0) == 20 * MIB);
	limit_give(0, 20 * MIB);
	check_empty();
}

/* Two threads free, one for good and one in stream order, while a third destroys the pool. */
void frees_noted_after_their_pool(void)
{
	CUmemoryPool pool = (CUmemoryPool)&taken;

	pool_change(pool, 8 * MIB, 4 * MIB);
	pool_forget(pool);
	pool_change(pool, -(int64_t)(8 * MIB), 0);
	pool_change(pool, 0, -(int64_t)(4 * MIB));
	CHECK(pool_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
	CHECK(pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
	CHECK(pool_kept(NULL) == 0);
	pool_forget(pool);
}

/* Memory that is kept for the next allocation in stream order is freed when another one needs it.
 */
void reclaim_under_pressure(void)
{
	CUdeviceptr pointer;

	fake_rooms.limit = 32 * MIB;
	pointer = allocate(kind, 20 * MIB);
	OK(cuMemFreeAsync(pointer, NULL));
	pointer = allocate(kind, 32 * MIB);
	OK(cuMemFree_v2(pointer));
	check_empty();
}
