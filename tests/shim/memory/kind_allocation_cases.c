/* kind_allocation_cases.c: what every kind of memory promises about allocating and freeing. */
#include "kind_cases.h"
#include "memory/limit.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

void allocate_and_free(void)
{
	CUdeviceptr pointer = allocate(kind, 8 * MIB);

	fill(pointer, 8 * MIB, 1);
	CHECK(filled(pointer, 8 * MIB, 1));
	CHECK(memory_used(0) == 8 * MIB);
	CHECK(total() == 8 * MIB);
	OK(cuMemFree_v2(pointer));
	check_empty();
}

void double_free(void)
{
	CUdeviceptr pointer = allocate(kind, 4 * MIB), other = allocate(kind, 4 * MIB);

	OK(cuMemFree_v2(pointer));
	CHECK(cuMemFree_v2(pointer) != CUDA_SUCCESS);
	CHECK(memory_used(0) == 4 * MIB);
	OK(cuMemFree_v2(other));
	check_empty();
}

static void *free_one(void *pointer)
{
	OK(cuMemFree_v2((CUdeviceptr)(uintptr_t)pointer));
	return NULL;
}

void free_from_another_thread(void)
{
	CUdeviceptr pointer = allocate(kind, 4 * MIB);
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, free_one, bytes_at(pointer)));
	pthread_join(thread, NULL);
	check_empty();
}

void context_gone(void)
{
	CUdeviceptr ours = allocate(kind, 4 * MIB), stays;

	fake_driver.current = fake_second_context(0);
	allocate(kind, 8 * MIB);
	allocate(kind, 4096);
	fake_context_ends(fake_second_context(0));
	fake_end_context(fake_second_context(0));
	fake_context_gone(fake_second_context(0));
	fake_driver.current = fake_context(0);
	CHECK(memory_used(0) == 4 * MIB);
	CHECK(total() == 4 * MIB);
	stays = allocate(kind, 4 * MIB);
	fill(ours, 4 * MIB, 3);
	CHECK(filled(ours, 4 * MIB, 3));
	OK(cuMemFree_v2(stays));
	OK(cuMemFree_v2(ours));
	check_empty();
}

void stream_order(void)
{
	CUdeviceptr pointer = allocate(kind, 4 * MIB);

	OK(cuMemFreeAsync(pointer, NULL));
	CHECK(cuMemFreeAsync(pointer, NULL) != CUDA_SUCCESS);
	CHECK(cuMemFree_v2(pointer) != CUDA_SUCCESS);
	check_empty();
}

/* A forked child has no memory, and may allocate its own. */
void fork_child(void)
{
	CUdeviceptr pointer = allocate(kind, 4 * MIB), own;
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (!child) {
		CHECK(memory_used(0) == 0);
		CHECK(total() == 0);
		CHECK(kind->serves(0));
		own = allocate(kind, 8 * MIB);
		CHECK(total() == 8 * MIB);
		OK(cuMemFree_v2(own));
		CHECK(total() == 0);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	CHECK(total() == 4 * MIB);
	OK(cuMemFree_v2(pointer));
	check_empty();
}

void no_bytes(void)
{
	CUdeviceptr pointer = 0;

	CHECK(cuMemAlloc_v2(&pointer, 0) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemAlloc_v2(NULL, MIB) == CUDA_ERROR_INVALID_VALUE);
	check_empty();
}

void too_many_bytes(void)
{
	const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2, SIZE_MAX / 2 + 1,
	                        (size_t)FAKE_CAPACITY + 1};
	CUdeviceptr pointer;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		CHECK(memory_allocate(kind, &pointer, sizes[i], 0, NULL) ==
		      CUDA_ERROR_OUT_OF_MEMORY);
	check_empty();
}

void few_bytes(void)
{
	CUdeviceptr pointers[64];
	size_t sizes[64];

	for (unsigned int i = 0; i < 64; i++) {
		sizes[i] = 1 + (size_t)i * i * 7;
		pointers[i] = allocate(kind, sizes[i]);
		CHECK(pointers[i] % 256 == 0);
		fill(pointers[i], sizes[i], (uint8_t)i);
	}
	for (unsigned int i = 0; i < 64; i++)
		CHECK(filled(pointers[i], sizes[i], (uint8_t)i));
	for (unsigned int i = 0; i < 64; i++)
		OK(cuMemFree_v2(pointers[(i * 37) % 64]));
	check_empty();
}

/* A kind that finds allocations finds them by every address in them. */
void addresses_inside(void)
{
	size_t sizes[] = {4096, 8 * MIB}, offsets[] = {0, 1, 2048, 4095};
	struct memory_place place;

	for (size_t i = 0; i < 2; i++) {
		CUdeviceptr pointer = allocate(kind, sizes[i]);

		for (size_t j = 0; j < 4; j++) {
			CUdeviceptr at = pointer + (j == 3 ? sizes[i] - 1 : offsets[j]);

			CHECK(memory_locate(at, &place) == (kind->find != NULL));
			if (!kind->find)
				continue;
			CHECK(place.base == pointer && place.size == sizes[i]);
			CHECK(place.device == 0 && place.context == fake_context(0));
		}
		CHECK(!memory_locate(pointer + sizes[i], &place) || place.base != pointer);
		OK(cuMemFree_v2(pointer));
		CHECK(!memory_locate(pointer, &place));
	}
	check_empty();
}

/* Whichever call of the driver's fails, nothing remains allocated. */
void driver_refuses(void)
{
	CUdeviceptr pointer;

	for (unsigned int call = 1; call <= 4; call++) {
		CUresult result;

		fake_driver.fail_after = call;
		result = memory_allocate(kind, &pointer, 12 * MIB, 0, NULL);
		if (fake_driver.fail_after) { /* the allocation needs fewer calls */
			fake_driver.fail_after = 0;
			OK(result);
			OK(cuMemFree_v2(pointer));
		} else {
			CHECK(result == CUDA_ERROR_UNKNOWN);
		}
		check_empty();
	}
}
