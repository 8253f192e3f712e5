/* swapped_cases.c: swapped memory is evicted and restored. */
#include "mover_cases.h"

void only_what_others_lack_leaves(void)
{
	struct gl_memory some = amount_of(6 * MIB);

	hold();
	swapped_block(24 * MIB, 1);
	memory_mover.allow_eviction();
	memory_mover.evict(&some);
	step_until_idle();
	CHECK(fake_driver.used[0] == 16 * MIB); /* whole segments of 4 MiB */
	CHECK(reported().resident == 16 * MIB && reported().bytes == 24 * MIB);
}

void what_nobody_touched_is_not_copied_again(void)
{
	CUdeviceptr pointer;

	hold();
	pointer = swapped_block(24 * MIB, 1);
	hand_over();
	CHECK(fake_driver.copied_out == 24 * MIB);
	hold();
	hand_over();
	CHECK(fake_driver.copied_out == 24 * MIB);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

void it_comes_before_its_turn(void)
{
	struct gl_memory some = amount_of(8 * MIB);

	hold();
	swapped_block(24 * MIB, 1);
	hand_over();
	memory_mover.preload(&some);
	while (reported().resident < 8 * MIB)
		memory_mover.step();
	memory_mover.stop();
	CHECK(fake_driver.used[0] == 8 * MIB);
}

void what_is_freed_while_it_leaves_may_be_allocated_again_at_once(void)
{
	CUdeviceptr pointer;

	fake_rooms.limit = 24 * MIB;
	fake_rooms.cleans =
	    false; /* a device is waited for when it computes the first fingerprint */
	hold();
	pointer = swapped_block(24 * MIB, 1);
	fake_driver.hold_events = true;
	memory_mover.allow_eviction();
	evict_on(0, 24 * MIB);
	for (int i = 0; i < 100; i++)
		memory_mover.step();
	CHECK(fake_driver.copied_out > 0 && fake_driver.used[0] > 0);
	OK(cuMemFree_v2(pointer));
	pointer = allocate(&swapped_memory, 24 * MIB);
	CHECK(memory_used(0) == 24 * MIB && reported().bytes == 24 * MIB);
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(memory_used(0) == 24 * MIB && reported().bytes == 24 * MIB);
	OK(cuMemFree_v2(pointer));
	CHECK(memory_used(0) == 0 && fake_driver.used[0] == 0);
}

void a_restore_goes_on_after_a_revoke(void)
{
	struct gl_grant grant = grant_of(24 * MIB);
	CUdeviceptr pointer;

	hold();
	pointer = swapped_block(24 * MIB, 1);
	hand_over();
	fake_driver.hold_events = true;
	memory_mover.restore(&grant);
	CHECK(memory_mover.step());
	CHECK(!memory_mover.restore_finished());
	memory_mover.stop();
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(fake_driver.used[0] < 24 * MIB);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
}

void all_kinds_come_with_one_lease(void)
{
	CUdeviceptr pointer;

	hold();
	pointer = swapped_block(24 * MIB, 1);
	allocate(&managed_memory, 8 * MIB);
	allocate(&fixed_memory, 8 * MIB);
	hand_over();
	CHECK(fake_driver.used[0] == 8 * MIB);
	hold();
	CHECK(filled(pointer, 24 * MIB, 1));
	CHECK(fake_driver.prefetched == 8 * MIB);
	CHECK(memory_mover.link_sample().bytes == 32 * MIB);
}
