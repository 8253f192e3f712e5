/* details_cases.c: the details of memory that the daemon is told for people: how much was evicted
 * without a copy, why there are no fingerprints, why memory stays. And clean memory of two devices.
 */
#include "mover_cases.h"

#include "memory/ranges.h"

#define SIZE (24 * MIB)
#define PIECE (4 * MIB)

static struct gl_details details_of(CUdevice device)
{
	struct gl_details found[GL_MAX_DEVICES];
	uint32_t n = memory_details(found);

	for (uint32_t i = 0; i < n; i++)
		if (found[i].uuid[0] == fake_uuid_byte(device))
			return found[i];
	CHECK(!"the device is known");
	return found[0];
}

/* The program's memory is evicted, restored and, after a call, evicted again. */
static void leave_twice(void)
{
	hold();
	swapped_block(SIZE, 1);
	hand_over();
	hold();
	fake_rooms.submitted++;
	hand_over();
}

void what_left_without_a_copy_is_said_once(void)
{
	leave_twice();
	CHECK(fake_driver.copied_out == SIZE);
	CHECK(details_of(0).left == SIZE);
	CHECK(details_of(0).left == 0 && details_of(0).clean == GL_CLEAN_ON);
}

void what_was_copied_is_not_said_to_have_left_without(void)
{
	fake_rooms.cleans = false;
	leave_twice();
	CHECK(fake_driver.copied_out == 2 * SIZE);
	CHECK(details_of(0).left == 0 && details_of(0).clean == GL_CLEAN_SITE);
}

void nobody_knows_before_something_has_left(void)
{
	hold();
	swapped_block(SIZE, 1);
	CHECK(details_of(0).clean == GL_CLEAN_UNKNOWN);
}

void it_is_said_why_a_driver_has_no_fingerprints(void)
{
	fake_driver.refuse_modules = true;
	leave_twice();
	CHECK(details_of(0).clean == GL_CLEAN_DRIVER && details_of(0).left == 0);
}

void it_is_said_that_a_kernel_is_refused(void)
{
	fake_driver.refuse_launches = true;
	leave_twice();
	CHECK(details_of(0).clean >= GL_CLEAN_DRIVER && details_of(0).left == 0);
}

void it_is_said_that_fingerprints_are_wrong(void)
{
	fake_driver.wrong_fingerprints = 1;
	leave_twice();
	CHECK(details_of(0).clean == GL_CLEAN_WRONG && details_of(0).left == 0);
}

void what_stays_is_said_by_its_reason(void)
{
	struct gl_details found;

	hold();
	swapped_block(SIZE, 1);
	fake_driver.refuse_pinning = true;
	hand_over();
	memory_count_mapped(0, 6 * MIB);
	allocate(&fixed_memory, 2 * MIB);
	found = details_of(0);
	CHECK(found.unhosted == SIZE && found.mapped == 6 * MIB && found.other == 2 * MIB);
	CHECK(found.shared == 0);
	CHECK(reported().fixed == found.unhosted + found.mapped + found.other);
	memory_count_mapped(0, -(int64_t)(6 * MIB));
	CHECK(details_of(0).mapped == 0);
}

/* -- two devices ----------------------------------------------------------------------------- */

/* What is clean on one device tells nothing about the other, even at the same addresses. */
void each_of_two_devices_knows_its_own_memory(void)
{
	struct gl_details said_of[GL_MAX_DEVICES];
	CUdeviceptr first, second;

	CHECK(swapped_memory.serves(0) && swapped_memory.serves(1));
	hold();
	first = block_on(0, SIZE, 1);
	second = block_on(1, SIZE, 1); /* the same bytes */
	hand_both_over();
	CHECK(fake_driver.copied_out == 2 * SIZE);
	hold();
	bytes_at(second)[PIECE + 5]++;
	fake_rooms.submitted++;
	hand_both_over();
	CHECK(fake_driver.copied_out == 2 * SIZE + PIECE);
	CHECK(memory_details(said_of) == 2);
	CHECK(said_of[0].left == SIZE && said_of[1].left == SIZE - PIECE);
	hold();
	bytes_at(second)[PIECE + 5]--;
	CHECK(filled(first, SIZE, 1) && filled(second, SIZE, 1));
	OK(cuMemFree_v2(first));
	fake_rooms.submitted++;
	hand_both_over();
	CHECK(fake_driver.copied_out == 2 * SIZE + 2 * PIECE);
	hold();
	CHECK(filled(second, SIZE, 1));
}

/* The context of one device ends with its fingerprints, and the other device goes on. */
void the_other_device_goes_on_when_the_context_of_one_ends(void)
{
	CUdeviceptr second;

	CHECK(swapped_memory.serves(0) && swapped_memory.serves(1));
	hold();
	block_on(0, SIZE, 1);
	second = block_on(1, SIZE, 2);
	hand_both_over();
	hold();
	fake_context_ends(fake_context(0));
	fake_end_context(fake_context(0));
	fake_context_gone(fake_context(0));
	fake_driver.current = fake_context(1);
	fake_rooms.submitted++;
	hand_both_over();
	CHECK(fake_driver.copied_out == 2 * SIZE);
	CHECK(details_of(1).left == SIZE);
	hold();
	CHECK(filled(second, SIZE, 2));
}
