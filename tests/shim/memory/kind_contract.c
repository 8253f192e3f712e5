/* kind_contract.c: tests what every kind of memory promises (shim/memory/kind.h), case by case.
 *
 * kind_contract: prints the cases and kinds, one pair on each line. kind_contract CASE KIND: runs
 * one, in shim/memory alone, on a fake driver in this process. A new kind is tested as soon as it
 * has a row in MEMORY_KINDS.
 */
#include "checks.h"
#include "memory/kinds.h"
#include "memory/limit.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_THREADS 8

static const struct memory_kind *kind;

/* -- the cases ------------------------------------------------------------------------------ */

static void allocate_and_free(void)
{
	CUdeviceptr pointer = allocate(kind, 8 * MIB);

	fill(pointer, 8 * MIB, 1);
	CHECK(filled(pointer, 8 * MIB, 1));
	CHECK(memory_used(0) == 8 * MIB);
	CHECK(total() == 8 * MIB);
	OK(cuMemFree_v2(pointer));
	check_empty();
}

static void changes_are_told(void)
{
	unsigned int before = atomic_load(&fake_rooms.changes);
	CUdeviceptr pointer = allocate(kind, 4 * MIB);

	CHECK(atomic_load(&fake_rooms.changes) > before);
	before = atomic_load(&fake_rooms.changes);
	OK(cuMemFree_v2(pointer));
	CHECK(atomic_load(&fake_rooms.changes) > before);
}

static void double_free(void)
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

static void free_from_another_thread(void)
{
	CUdeviceptr pointer = allocate(kind, 4 * MIB);
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, free_one, bytes_at(pointer)));
	pthread_join(thread, NULL);
	check_empty();
}

static void limit_reached(void)
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

static void others_count(void)
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
static void limit_reached_by_several_threads(void)
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

static void context_gone(void)
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

/* Memory that is kept for the next allocation in stream order is freed when another one needs it.
 */
static void reclaim_under_pressure(void)
{
	CUdeviceptr pointer;

	fake_rooms.limit = 32 * MIB;
	pointer = allocate(kind, 20 * MIB);
	OK(cuMemFreeAsync(pointer, NULL));
	pointer = allocate(kind, 32 * MIB);
	OK(cuMemFree_v2(pointer));
	check_empty();
}

static void stream_order(void)
{
	CUdeviceptr pointer = allocate(kind, 4 * MIB);

	OK(cuMemFreeAsync(pointer, NULL));
	CHECK(cuMemFreeAsync(pointer, NULL) != CUDA_SUCCESS);
	CHECK(cuMemFree_v2(pointer) != CUDA_SUCCESS);
	check_empty();
}

/* A forked child has no memory, and may allocate its own. */
static void fork_child(void)
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

static void no_bytes(void)
{
	CUdeviceptr pointer = 0;

	CHECK(cuMemAlloc_v2(&pointer, 0) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemAlloc_v2(NULL, MIB) == CUDA_ERROR_INVALID_VALUE);
	check_empty();
}

static void too_many_bytes(void)
{
	const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2, SIZE_MAX / 2 + 1,
	                        (size_t)FAKE_CAPACITY + 1};
	CUdeviceptr pointer;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		CHECK(memory_allocate(kind, &pointer, sizes[i], 0, NULL) ==
		      CUDA_ERROR_OUT_OF_MEMORY);
	check_empty();
}

static void few_bytes(void)
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
static void addresses_inside(void)
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
static void driver_refuses(void)
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

/* Memory with a mover is evicted and restored as it was. */
static void handoff(void)
{
	CUdeviceptr large = allocate(kind, 20 * MIB), small = allocate(kind, 4096);
	uint64_t before = fake_driver.used[0];

	for (uint8_t turn = 0; turn < 3; turn++) {
		fill(large, 20 * MIB, turn);
		fill(small, 4096, (uint8_t)(turn + 7));
		fake_rooms.submitted++;
		hand_over();
		CHECK(fake_driver.used[0] == (kind->mover ? 0 : before));
		CHECK(total() >= 20 * MIB + 4096);
		hold();
		CHECK(fake_driver.used[0] == before);
		CHECK(filled(large, 20 * MIB, turn));
		CHECK(filled(small, 4096, (uint8_t)(turn + 7)));
	}
	OK(cuMemFree_v2(large));
	OK(cuMemFree_v2(small));
	check_empty();
}

static void free_while_others_hold(void)
{
	CUdeviceptr large = allocate(kind, 20 * MIB), small = allocate(kind, 4096), later;

	hand_over();
	OK(cuMemFree_v2(large));
	OK(cuMemFree_v2(small));
	later = allocate(kind, 8 * MIB); /* it gets addresses now, and memory with the lease */
	hold();
	fill(later, 8 * MIB, 5);
	CHECK(filled(later, 8 * MIB, 5));
	OK(cuMemFree_v2(later));
	check_empty();
}

static void report_adds_up(void)
{
	CUdeviceptr pointer = allocate(kind, 6 * MIB);
	struct gl_device device = reported();

	CHECK(!memcmp(device.uuid, device_uuid(0), GL_UUID_BYTES));
	CHECK(device.resident <= device.bytes);
	CHECK(kind->mover ? device.bytes == 6 * MIB : device.fixed == 6 * MIB);
	OK(cuMemFree_v2(pointer));
}

/* -- choosing a case and a kind
 * ------------------------------------------------------------------------------------- */

#define CASES(CASE)                                                                                \
	CASE(allocate_and_free)                                                                    \
	CASE(changes_are_told)                                                                     \
	CASE(double_free)                                                                          \
	CASE(free_from_another_thread)                                                             \
	CASE(limit_reached)                                                                        \
	CASE(others_count)                                                                         \
	CASE(limit_reached_by_several_threads)                                                     \
	CASE(context_gone)                                                                         \
	CASE(reclaim_under_pressure)                                                               \
	CASE(stream_order)                                                                         \
	CASE(fork_child)                                                                           \
	CASE(no_bytes)                                                                             \
	CASE(too_many_bytes)                                                                       \
	CASE(few_bytes)                                                                            \
	CASE(addresses_inside)                                                                     \
	CASE(driver_refuses)                                                                       \
	CASE(handoff)                                                                              \
	CASE(free_while_others_hold)                                                               \
	CASE(report_adds_up)

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
#define CASE(name) {#name, name},
    CASES(CASE)
#undef CASE
};
#define N_CASES (sizeof(cases) / sizeof(cases[0]))

static void list(void)
{
	for (size_t c = 0; c < N_CASES; c++)
		for (size_t k = 0; k < N_MEMORY_KINDS; k++)
			printf("%s %s\n", cases[c].name, memory_kinds[k]->name);
}

/* The job may use this kind, and has its lease. */
static void set_up(void)
{
	fake_rooms.swaps = true;
	fake_driver.current = fake_context(0);
	device_uuid(0);
	CHECK(memory_kinds[kind->row] == kind);
	CHECK(kind->serves(0));
	hold();
}

int main(int argc, char **argv)
{
	void (*run)(void) = NULL;

	if (argc != 3) {
		list();
		return 0;
	}
	for (size_t c = 0; c < N_CASES; c++)
		if (!strcmp(cases[c].name, argv[1]))
			run = cases[c].run;
	for (size_t k = 0; k < N_MEMORY_KINDS; k++)
		if (!strcmp(memory_kinds[k]->name, argv[2]))
			kind = memory_kinds[k];
	CHECK(run && kind);
	set_up();
	run();
	return 0;
}
