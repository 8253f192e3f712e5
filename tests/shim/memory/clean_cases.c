/* clean_cases.c: memory that equals its copy is evicted without another copy. */
#include "mover_cases.h"

#include "memory/swap/lane.h"

#define SIZE (24 * MIB)
#define PIECE (4 * MIB) /* six of them */

/* The program makes a call that may have written anything, and then its lease is over. */
static void leave_again(void)
{
	hold();
	fake_rooms.submitted++;
	hand_over();
}

static void change(CUdeviceptr at)
{
	hold();
	(*(uint8_t *)(uintptr_t)at)++;
	fake_rooms.submitted++;
	hand_over();
}

void what_is_only_read_is_copied_once(void)
{
	CUdeviceptr pointer;

	hold();
	pointer = swapped_block(SIZE, 1);
	hand_over();
	CHECK(fake_driver.copied_out == SIZE);
	for (int turn = 0; turn < 5; turn++)
		leave_again();
	CHECK(fake_driver.copied_out == SIZE);
	CHECK(fake_driver.used[0] == 0);
	hold();
	CHECK(filled(pointer, SIZE, 1));
}

void a_changed_byte_is_copied(void)
{
	const size_t places[] = {0, PIECE - 1, PIECE, SIZE / 2 + 12345, SIZE - 1};
	CUdeviceptr pointer;

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		uint64_t before;

		hold();
		pointer = swapped_block(SIZE, 1);
		hand_over();
		before = fake_driver.copied_out;
		change(pointer + places[i]);
		CHECK(fake_driver.copied_out == before + PIECE);
		hold();
		(*(uint8_t *)(uintptr_t)(pointer + places[i]))--;
		CHECK(filled(pointer, SIZE, 1));
		OK(cuMemFree_v2(pointer));
	}
}

/* The bytes change and change back. The copy was made between, and is compared. */
void what_changes_back_is_compared_with_its_last_copy(void)
{
	CUdeviceptr pointer;
	uint8_t *byte;

	hold();
	pointer = swapped_block(PIECE, 1);
	byte = (uint8_t *)(uintptr_t)(pointer + 100);
	hand_over();
	change(pointer + 100);
	hold();
	(*byte)--;
	fake_rooms.submitted++;
	hand_over();
	CHECK(fake_driver.copied_out == 3 * PIECE);
	hold();
	CHECK(filled(pointer, PIECE, 1));
}

void new_memory_is_copied_whatever_was_there(void)
{
	CUdeviceptr first, second;

	hold();
	first = swapped_block(SIZE, 1);
	hand_over();
	leave_again();
	CHECK(fake_driver.copied_out == SIZE);
	hold();
	OK(cuMemFree_v2(first));
	second = swapped_block(SIZE, 1);
	hand_over();
	CHECK(fake_driver.copied_out == 2 * SIZE);
	hold();
	CHECK(filled(second, SIZE, 1));
}

void what_changes_is_looked_at_ever_more_seldom(void)
{
	uint64_t once, before, copied;
	CUdeviceptr pointer;

	hold();
	pointer = swapped_block(PIECE, 1);
	hand_over();
	before = fake_driver.looked_at;
	for (int turn = 0; turn < 200; turn++)
		change(pointer);
	once = (fake_driver.looked_at - before) / PIECE;
	CHECK(once >= 8 && once <= 20);
	for (int turn = 0; turn < 70;
	     turn++) /* after at most so many it is checked again and found clean */
		leave_again();
	copied = fake_driver.copied_out;
	leave_again();
	CHECK(fake_driver.copied_out == copied);
}

/* -- without fingerprints everything is copied ----------------------------------------------- */

static void all_is_copied_each_time(void)
{
	CUdeviceptr pointer;

	hold();
	pointer = swapped_block(SIZE, 1);
	hand_over();
	leave_again();
	leave_again();
	CHECK(fake_driver.copied_out == 3 * SIZE);
	CHECK(fake_driver.modules == 0);
	hold();
	CHECK(filled(pointer, SIZE, 1));
}

void a_site_may_switch_it_off(void)
{
	fake_rooms.cleans = false;
	all_is_copied_each_time();
	CHECK(fake_driver.looked_at == 0);
}

void a_driver_may_refuse_the_module(void)
{
	fake_driver.refuse_modules = true;
	all_is_copied_each_time();
	CHECK(fake_driver.looked_at == 0);
}

void a_driver_may_refuse_the_kernel(void)
{
	fake_driver.refuse_launches = true;
	all_is_copied_each_time();
}

/* The known fingerprint is wrong, so no other one is computed. */
void a_device_may_compute_wrong_fingerprints(void)
{
	fake_driver.wrong_fingerprints = 1;
	all_is_copied_each_time();
	CHECK(fake_driver.looked_at < MIB);
}

void a_full_device_has_no_fingerprints_yet(void)
{
	CUdeviceptr pointer;

	hold();
	pointer = swapped_block(PIECE, 1);
	fake_driver.capacity = fake_driver.used[0];
	hand_over();
	CHECK(fake_driver.looked_at == 0 && fake_driver.copied_out == PIECE);
	fake_driver.capacity = FAKE_CAPACITY;
	leave_again();
	leave_again();
	CHECK(fake_driver.copied_out == 2 * PIECE);
	hold();
	CHECK(filled(pointer, PIECE, 1));
}

/* -- during a check ---------------------------------------------------------------------------- */

/* A check has begun. It does not end as long as fake_driver.hold_events is set. */
static CUdeviceptr looked_at(void)
{
	struct gl_memory all = amount_of(SIZE);
	CUdeviceptr pointer;

	hold();
	pointer = swapped_block(SIZE, 1);
	hand_over();
	hold();
	fake_rooms.submitted++;
	memory_mover.allow_eviction();
	fake_driver.hold_events = true;
	memory_mover.evict(&all);
	CHECK(memory_mover.step());
	CHECK(fake_driver.used[0] == SIZE);
	return pointer;
}

void a_lease_may_come_during_a_look(void)
{
	struct gl_grant grant = grant_of(SIZE);
	CUdeviceptr pointer = looked_at();

	memory_mover.restore(&grant);
	CHECK(memory_mover.step());
	CHECK(!memory_mover.restore_finished());
	fake_driver.hold_events = false;
	while (!memory_mover.restore_finished())
		memory_mover.step();
	CHECK(filled(pointer, SIZE, 1));
	change(pointer);
	CHECK(fake_driver.copied_out == SIZE + PIECE);
}

void memory_may_be_freed_during_a_look(void)
{
	CUdeviceptr pointer = looked_at();

	OK(cuMemFree_v2(pointer));
	CHECK(fake_driver.used[0] == SIZE);
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(fake_driver.used[0] == 0);
}

void the_context_may_end_during_a_look(void)
{
	CUdeviceptr pointer = looked_at();

	fake_driver.hold_events = false;
	fake_context_ends(fake_context(0));
	CHECK(fake_driver.modules == 0);
	step_until_idle();
	CHECK(fake_driver.copied_out == SIZE);
	leave_again();
	CHECK(fake_driver.copied_out == SIZE);
	CHECK(fake_driver.modules == 1);
	hold();
	CHECK(filled(pointer, SIZE, 1));
}

/* A stuck job has made the one call that it may make, so the fingerprints are outdated. */
void a_call_after_a_look_makes_it_worthless(void)
{
	CUdeviceptr pointer = looked_at();

	memory_mover.stop();
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(fake_driver.used[0] == SIZE);
	change(pointer + PIECE);
	CHECK(fake_driver.copied_out == SIZE + PIECE);
}
