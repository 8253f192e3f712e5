/* lane_cases.c: memory of two devices of a process moves at the same time. */
#include "mover_cases.h"

#define SIZE (24 * MIB)
#define ENOUGH 100 /* steps in which a device moves all that it has, if it is not held up */

static CUdeviceptr blocks[2];

/* Without fingerprints, since a device is waited for when it computes the first one. */
static void begin(void)
{
	fake_rooms.cleans = false;
	hold();
	for (CUdevice device = 0; device < 2; device++)
		blocks[device] = block_on(device, SIZE, (uint8_t)(1 + device));
}

static void preload_on(CUdevice device)
{
	struct gl_memory amount = amount_on(device, SIZE);

	memory_mover.preload(&amount);
}

/* Events happen on that device alone. */
static void hold_all_but(CUdevice device)
{
	fake_driver.hold_events = true;
	fake_driver.goes_on = 1u << device;
}

static void take_steps(void)
{
	for (int i = 0; i < ENOUGH; i++)
		memory_mover.step();
}

static void check_all(void)
{
	fake_driver.hold_events = false;
	step_until_idle();
	hold();
	for (CUdevice device = 0; device < 2; device++)
		CHECK(filled(blocks[device], SIZE, (uint8_t)(1 + device)));
}

void a_preload_comes_while_the_other_device_evicts(void)
{
	begin();
	memory_mover.allow_eviction();
	evict_on(1, SIZE);
	step_until_idle();
	hold_all_but(1);
	evict_on(0, SIZE);
	take_steps();
	CHECK(fake_driver.used[0] == SIZE && fake_driver.used[1] == 0);
	preload_on(1);
	take_steps();
	CHECK(fake_driver.used[1] == SIZE); /* it has come */
	CHECK(fake_driver.used[0] == SIZE); /* before the first byte of the other has left */
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(fake_driver.used[0] == 0 && fake_driver.used[1] == SIZE);
	check_all();
}

void an_eviction_leaves_the_other_devices_preload_alone(void)
{
	begin();
	memory_mover.allow_eviction();
	evict_on(1, SIZE);
	step_until_idle();
	hold_all_but(0);
	preload_on(1);
	take_steps();
	CHECK(fake_driver.used[1] < SIZE);
	evict_on(0, SIZE);
	take_steps();
	CHECK(fake_driver.used[0] == 0);
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(fake_driver.used[0] == 0 && fake_driver.used[1] == SIZE);
	check_all();
}

void each_device_preloads_after_its_own_eviction(void)
{
	begin();
	memory_mover.allow_eviction();
	hold_all_but(1);
	evict_on(0, SIZE);
	evict_on(1, SIZE);
	preload_on(0);
	preload_on(1);
	take_steps();
	CHECK(fake_driver.used[1] == SIZE && fake_driver.used[0] == SIZE);
	CHECK(fake_driver.copied_out > SIZE); /* all of one device, and what is held of the other */
	fake_driver.hold_events = false;
	step_until_idle();
	CHECK(fake_driver.copied_out == 2 * SIZE);
	CHECK(fake_driver.used[1] == SIZE && fake_driver.used[0] == SIZE);
	check_all();
}

/* The gate opens, since the program shall hear of its broken device; but not before all that can
 * come has come. */
void a_device_whose_restore_fails_holds_up_no_other(void)
{
	struct gl_grant grant = grant_of(SIZE);

	begin();
	hand_both_over();
	fake_driver.fail_after = 1;
	memory_mover.restore(&grant);
	while (!memory_mover.restore_finished())
		memory_mover.step();
	CHECK(fake_rooms.complaints == 1);
	CHECK(fake_driver.used[0] == 0 && fake_driver.used[1] == SIZE);
	CHECK(filled(blocks[1], SIZE, 2));
	memory_mover.allow_eviction();
	check_all();
}

void a_lease_waits_for_all_devices(void)
{
	struct gl_grant grant = grant_of(SIZE);

	begin();
	hand_both_over();
	hold_all_but(1);
	memory_mover.restore(&grant);
	take_steps();
	CHECK(fake_driver.used[1] == SIZE && filled(blocks[1], SIZE, 2));
	CHECK(!memory_mover.restore_finished());
	fake_driver.hold_events = false;
	while (!memory_mover.restore_finished())
		memory_mover.step();
	CHECK(memory_mover.link_sample().bytes == 2 * SIZE);
	check_all();
}
