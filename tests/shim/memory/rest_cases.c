/* rest_cases.c: while a job moves, host memory is not registered once its bytes have come. */
#include "mover_cases.h"

#include "memory/host.h"
#include "memory/store/store.h"

#define ALL (24 * MIB) /* six segments, each with a chunk of its own */
/* One chunk for all, with slices of which the first has a half of the fifth segment's copy. */
#define CHUNK (144 * MIB)
#define SLICE_OF_CHUNK (CHUNK / 8)

/* The program has ALL, filled with 1, and host memory of its own, so much, ready. */
static CUdeviceptr begin_with(uint64_t host)
{
	struct gl_memory all = amount_of(ALL);
	CUdeviceptr pointer;

	fake_rooms.cleans = false; /* fingerprints lie in pinned memory too */
	hold();
	pointer = swapped_block(ALL, 1);
	memory_mover.expect(&all);
	while (memory_mover.prepare() > 0)
		;
	CHECK(fake_driver.pinned == host);
	memory_mover.rest(true);
	step_until_idle();
	return pointer;
}

static CUdeviceptr begin(void)
{
	return begin_with(ALL);
}

static CUdeviceptr begin_in_one_chunk(void)
{
	swap_store->set_piece(CHUNK);
	return begin_with(CHUNK);
}

void what_will_be_needed_stays_registered_while_the_job_works(void)
{
	begin();
	CHECK(fake_driver.pinned == ALL);
}

void what_has_left_rests_and_the_rest_waits_for_its_bytes(void)
{
	struct gl_memory some = amount_of(8 * MIB);

	begin();
	memory_mover.allow_eviction();
	memory_mover.evict(&some);
	step_until_idle();
	CHECK(fake_driver.used[0] == ALL - 8 * MIB && fake_driver.pinned == ALL - 8 * MIB);
	hand_over();
	CHECK(fake_driver.used[0] == 0 && fake_driver.pinned == 0);
}

void bytes_under_way_keep_their_memory_registered(void)
{
	struct gl_memory all = amount_of(ALL);

	begin();
	fake_driver.hold_events = true;
	memory_mover.allow_eviction();
	memory_mover.evict(&all);
	for (int i = 0; i < 100; i++)
		CHECK(memory_mover.step());
	CHECK(fake_driver.copied_out > 0 && fake_driver.pinned == ALL);
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(fake_driver.pinned == 0);
}

void so_do_those_of_memory_that_is_freed_meanwhile(void)
{
	struct gl_memory all = amount_of(ALL);
	CUdeviceptr pointer = begin();

	fake_driver.hold_events = true;
	memory_mover.allow_eviction();
	memory_mover.evict(&all);
	for (int i = 0; i < 100; i++)
		CHECK(memory_mover.step());
	OK(cuMemFree_v2(pointer));
	for (int i = 0; i < 100; i++)
		CHECK(memory_mover.step());
	CHECK(fake_driver.pinned == ALL);
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(fake_driver.used[0] == 0 && fake_driver.pinned == 0);
}

void only_what_is_copied_is_registered_again(void)
{
	CUdeviceptr pointer = begin_in_one_chunk();

	hand_over();
	CHECK(fake_driver.pinned == 0);
	memory_mover.rest(false);
	hold();
	CHECK(filled(pointer, ALL, 1) && fake_driver.pinned == 2 * SLICE_OF_CHUNK);
}

void what_was_away_before_rests_too(void)
{
	begin();
	memory_mover.rest(false);
	hand_over();
	CHECK(fake_driver.pinned == ALL);
	memory_mover.rest(true);
	step_until_idle();
	CHECK(fake_driver.pinned == 0);
}

/* The driver waits for it, and this thread is the one that would have it go on. */
void nothing_rests_while_work_stands_still(void)
{
	begin();
	memory_mover.rest(false);
	hand_over();
	fake_rooms.stopped = true;
	memory_mover.rest(true);
	step_until_idle();
	CHECK(fake_driver.pinned == ALL);
	fake_rooms.stopped = false;
	step_until_idle();
	CHECK(fake_driver.pinned == 0);
}

/* Also where the job has a turn before it moves after all. */
void what_comes_back_is_registered_again(void)
{
	CUdeviceptr pointer = begin();

	hand_over();
	for (int moves = 1; moves >= 0; moves--) {
		memory_mover.rest(moves);
		hold();
		CHECK(filled(pointer, ALL, 1) && fake_driver.pinned == ALL);
		fake_rooms.submitted++; /* it works, so all of it is copied again */
		hand_over();
		CHECK(fake_driver.pinned == (moves ? 0 : ALL));
	}
}
