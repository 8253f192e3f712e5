/* kind_limit_cases.c: what every kind of memory promises about the limit of its job. */
#include "kind_cases.h"
#include "memory/limit.h"

#include <pthread.h>

#define N_THREADS 8

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
