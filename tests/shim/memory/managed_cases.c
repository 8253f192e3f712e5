/* managed_cases.c: managed memory is evicted and restored. */
#include "mover_cases.h"

static const struct memory_kind *const managed = &managed_memory;

/* The client thread does not wait while memory is restored: the fake driver ends this program if a
 * thread waits for an event. */
void it_comes_back_in_steps(void)
{
	struct gl_grant grant = grant_of(24 * MIB);

	allocate(managed, 24 * MIB);
	fake_driver.hold_events = true;
	memory_mover.restore(&grant);
	for (int i = 0; i < 5; i++) {
		CHECK(!memory_mover.restore_finished());
		CHECK(memory_mover.step());
	}
	CHECK(fake_driver.prefetched == 2 * SLICE);
	CHECK(memory_mover.pause_ns() > 0);
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(memory_mover.restore_finished());
	CHECK(fake_driver.prefetched == 24 * MIB);
	CHECK(fake_driver.streams == 0 && fake_driver.events == 0);
}

void a_revoke_ends_it(void)
{
	struct gl_grant grant = grant_of(24 * MIB);

	allocate(managed, 24 * MIB);
	fake_driver.hold_events = true;
	memory_mover.restore(&grant);
	CHECK(!memory_mover.restore_finished());
	CHECK(memory_mover.step());
	memory_mover.stop();
	CHECK(memory_mover.step()); /* the batches that have begun end */
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(fake_driver.prefetched == 2 * SLICE);
	CHECK(fake_driver.streams == 0 && fake_driver.events == 0);
	hold();
	CHECK(fake_driver.prefetched == 2 * SLICE + 24 * MIB);
}

void only_what_fits_comes_the_newest_first(void)
{
	CUdeviceptr newest;

	fake_rooms.oversub = true;
	fake_rooms.limit = 32 * MIB;
	allocate(managed, 20 * MIB);
	newest = allocate(managed, 20 * MIB);
	hold();
	CHECK(fake_driver.first_prefetch == newest);
	CHECK(fake_driver.prefetched == 20 * MIB);
}

void its_context_may_end_meanwhile(void)
{
	struct gl_grant grant = grant_of(24 * MIB);

	allocate(managed, 24 * MIB);
	fake_driver.hold_events = true;
	memory_mover.restore(&grant);
	CHECK(!memory_mover.restore_finished());
	CHECK(memory_mover.step());
	fake_driver.hold_events =
	    false; /* cuStreamSynchronize() waits for events when the context ends */
	fake_context_ends(fake_context(0));
	CHECK(fake_driver.streams == 0 && fake_driver.events == 0);
	CHECK(memory_mover.restore_finished());
}

void freed_memory_is_passed_over(void)
{
	CUdeviceptr oldest = allocate(managed, 12 * MIB), newest = allocate(managed, 12 * MIB);
	struct gl_grant grant = grant_of(24 * MIB);

	fake_driver.hold_events = true;
	memory_mover.restore(&grant);
	CHECK(!memory_mover.restore_finished());
	CHECK(memory_mover.step());
	OK(cuMemFree_v2(newest));
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(memory_mover.restore_finished());
	CHECK(fake_driver.prefetched == 2 * SLICE + 12 * MIB);
	OK(cuMemFree_v2(oldest));
	check_empty();
}

void what_came_is_said_once(void)
{
	struct gl_grant grant = grant_of(6 * MIB);
	struct link_sample moved;

	allocate(managed, 24 * MIB);
	memory_mover.restore(&grant);
	while (!memory_mover.restore_finished())
		memory_mover.step();
	moved = memory_mover.link_sample();
	CHECK(moved.bytes == 6 * MIB && moved.ns > 0); /* the rest was resident */
	CHECK(memory_mover.link_sample().bytes == 0);
}

/* Nothing is prefetched for a single call, nor without memory. */
void nothing_is_said_of_nothing(void)
{
	struct gl_grant grant = grant_of(6 * MIB);

	memory_mover.restore(&grant);
	while (!memory_mover.restore_finished())
		memory_mover.step();
	CHECK(memory_mover.link_sample().bytes == 0);
	allocate(managed, 24 * MIB);
	memory_mover.restore(NULL);
	CHECK(memory_mover.restore_finished());
	CHECK(memory_mover.link_sample().bytes == 0);
	CHECK(fake_driver.prefetched == 0);
}

/* Other jobs have displaced the memory, and the program goes on working. */
void it_comes_beside_work(void)
{
	struct gl_grant grant = grant_of(24 * MIB);

	hold();
	allocate(managed, 24 * MIB);
	memory_mover.refill(&grant);
	step_until_idle();
	CHECK(fake_driver.prefetched == 24 * MIB);
	CHECK(memory_mover.link_sample().bytes == 24 * MIB);
}

/* What a later grant says is restored as well, even during a restore. */
void a_second_refill_begins_anew(void)
{
	struct gl_grant grant = grant_of(24 * MIB);

	hold();
	allocate(managed, 8 * MIB);
	fake_driver.hold_events = true;
	memory_mover.refill(&grant);
	CHECK(memory_mover.step());
	allocate(managed, 4 * MIB);
	memory_mover.refill(&grant);
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(fake_driver.prefetched == 2 * SLICE + 12 * MIB);
}

void devices_of_others_are_left_alone(void)
{
	struct gl_grant grant = grant_of(24 * MIB);

	allocate(managed, 24 * MIB);
	grant.devices[0].uuid[0] ^= 1;
	memory_mover.restore(&grant);
	CHECK(memory_mover.restore_finished());
	fake_rooms.limit = NO_LIMIT;
	hold();
	CHECK(fake_driver.prefetched == 0);
}
