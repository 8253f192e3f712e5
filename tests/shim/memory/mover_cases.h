/* mover_cases.h: the cases of memory_movers.c, and functions that several of their files use. */
#ifndef MOVER_CASES_H
#define MOVER_CASES_H

#include "checks.h"

#define SLICE (FAKE_CAPACITY / 32) /* bytes of a slice of managed memory (managed.c) */

/* managed_cases.c */
#define MANAGED_CASES(CASE)                                                                        \
	CASE(it_comes_back_in_steps)                                                               \
	CASE(a_revoke_ends_it)                                                                     \
	CASE(only_what_fits_comes_the_newest_first)                                                \
	CASE(its_context_may_end_meanwhile)                                                        \
	CASE(freed_memory_is_passed_over)                                                          \
	CASE(what_came_is_said_once)                                                               \
	CASE(nothing_is_said_of_nothing)                                                           \
	CASE(it_comes_beside_work)                                                                 \
	CASE(a_second_refill_begins_anew)                                                          \
	CASE(devices_of_others_are_left_alone)

/* swapped_cases.c */
#define SWAPPED_CASES(CASE)                                                                        \
	CASE(only_what_others_lack_leaves)                                                         \
	CASE(what_nobody_touched_is_not_copied_again)                                              \
	CASE(it_comes_before_its_turn)                                                             \
	CASE(what_is_freed_while_it_leaves_may_be_allocated_again_at_once)                         \
	CASE(a_restore_goes_on_after_a_revoke)                                                     \
	CASE(all_kinds_come_with_one_lease)

/* store_cases.c */
#define STORE_CASES(CASE)                                                                          \
	CASE(a_store_may_answer_later)                                                             \
	CASE(what_has_no_copy_stays)                                                               \
	CASE(copies_go_back_to_their_store)                                                        \
	CASE(what_cannot_be_pinned_stays)                                                          \
	CASE(what_was_pinned_in_vain_goes_back_once_no_work_stands_still)                          \
	CASE(what_has_no_stream_stays_until_there_is_one)                                          \
	CASE(what_is_not_copied_stays_until_it_is)

/* host_memory_cases.c */
#define HOST_MEMORY_CASES(CASE)                                                                    \
	CASE(nothing_is_made_at_a_handoff_that_was_made_ahead)                                     \
	CASE(it_grows_by_what_is_lacking)                                                          \
	CASE(what_cannot_have_to_leave_any_more_goes_back)                                         \
	CASE(it_goes_back_when_work_that_stands_still_goes_on)                                     \
	CASE(what_is_away_stays_on_the_host)                                                       \
	CASE(it_is_pinned_in_slices_and_copies_stay_within_them)                                   \
	CASE(a_handoff_may_come_in_between)                                                        \
	CASE(a_context_may_end_in_between)                                                         \
	CASE(a_node_that_has_none_is_not_asked_again_and_again)                                    \
	CASE(a_file_that_cannot_be_used_goes_back)                                                 \
	CASE(a_driver_may_refuse_to_pin_it)                                                        \
	CASE(the_daemon_may_be_another_one_meanwhile)                                              \
	CASE(what_a_daemon_may_have_made_goes_back_if_the_next_has_none)                           \
	CASE(what_a_daemon_makes_goes_back_if_it_offers_none_any_more)                             \
	CASE(what_somebody_waits_for_is_got_ready_however_little_it_is)                            \
	CASE(the_node_may_have_no_more_in_mid_handoff)                                             \
	CASE(shared_memory_stays_and_needs_none)                                                   \
	CASE(it_breaks_no_capture)                                                                 \
	CASE(an_old_kernel_has_its_pages_touched_by_hand)                                          \
	CASE(helpers_may_end_before_the_next_one_starts)

/* carrier_cases.c */
#define CARRIER_CASES(CASE)                                                                        \
	CASE(what_a_carrier_does_not_take_goes_by_the_host)                                        \
	CASE(what_is_on_its_way_to_the_host_stays_registered_beside_a_carrier)                     \
	CASE(nothing_rests_while_the_job_has_its_turn)                                             \
	CASE(a_context_may_end_while_a_carrier_is_asked)                                           \
	CASE(a_carrier_leaves_the_program_descriptors)                                             \
	CASE(a_carrier_that_is_lost_on_its_way_is_asked_for_again)                                 \
	CASE(what_a_carrier_leaves_away_comes_by_the_next_one)                                     \
	CASE(what_a_carrier_brings_back_asks_for_room_for_a_piece_more)                            \
	CASE(a_carrier_that_comes_when_nothing_is_away_any_more_is_let_go)

/* rest_cases.c */
#define REST_CASES(CASE)                                                                           \
	CASE(what_will_be_needed_stays_registered_while_the_job_works)                             \
	CASE(what_has_left_rests_and_the_rest_waits_for_its_bytes)                                 \
	CASE(bytes_under_way_keep_their_memory_registered)                                         \
	CASE(so_do_those_of_memory_that_is_freed_meanwhile)                                        \
	CASE(only_what_is_copied_is_registered_again)                                              \
	CASE(what_was_away_before_rests_too)                                                       \
	CASE(nothing_rests_while_work_stands_still)                                                \
	CASE(what_comes_back_is_registered_again)

/* details_cases.c */
#define DETAILS_CASES(CASE)                                                                        \
	CASE(what_left_without_a_copy_is_said_once)                                                \
	CASE(what_was_copied_is_not_said_to_have_left_without)                                     \
	CASE(nobody_knows_before_something_has_left)                                               \
	CASE(it_is_said_why_a_driver_has_no_fingerprints)                                          \
	CASE(it_is_said_that_a_kernel_is_refused)                                                  \
	CASE(it_is_said_that_fingerprints_are_wrong)                                               \
	CASE(what_stays_is_said_by_its_reason)                                                     \
	CASE(each_of_two_devices_knows_its_own_memory)                                             \
	CASE(the_other_device_goes_on_when_the_context_of_one_ends)

/* lane_cases.c */
#define LANE_CASES(CASE)                                                                           \
	CASE(a_preload_comes_while_the_other_device_evicts)                                        \
	CASE(an_eviction_leaves_the_other_devices_preload_alone)                                   \
	CASE(each_device_preloads_after_its_own_eviction)                                          \
	CASE(a_device_whose_restore_fails_holds_up_no_other)                                       \
	CASE(a_lease_waits_for_all_devices)

/* clean_cases.c */
#define CLEAN_CASES(CASE)                                                                          \
	CASE(what_is_only_read_is_copied_once)                                                     \
	CASE(a_changed_byte_is_copied)                                                             \
	CASE(what_changes_back_is_compared_with_its_last_copy)                                     \
	CASE(new_memory_is_copied_whatever_was_there)                                              \
	CASE(what_changes_is_looked_at_ever_more_seldom)                                           \
	CASE(a_site_may_switch_it_off)                                                             \
	CASE(a_driver_may_refuse_the_module)                                                       \
	CASE(a_driver_may_refuse_the_kernel)                                                       \
	CASE(a_device_may_compute_wrong_fingerprints)                                              \
	CASE(a_full_device_has_no_fingerprints_yet)                                                \
	CASE(a_lease_may_come_during_a_look)                                                       \
	CASE(memory_may_be_freed_during_a_look)                                                    \
	CASE(the_context_may_end_during_a_look)                                                    \
	CASE(a_call_after_a_look_makes_it_worthless)

#define CASE(name) void name(void);
MANAGED_CASES(CASE)
SWAPPED_CASES(CASE)
STORE_CASES(CASE)
HOST_MEMORY_CASES(CASE)
CARRIER_CASES(CASE)
REST_CASES(CASE)
DETAILS_CASES(CASE)
LANE_CASES(CASE)
CLEAN_CASES(CASE)
#undef CASE

static inline void step_until_idle(void)
{
	while (memory_mover.step())
		;
}

/* Allocates swapped memory and fills it, by a call of the program's. */
static inline CUdeviceptr swapped_block(size_t size, uint8_t seed)
{
	CUdeviceptr pointer;

	CHECK(swapped_memory.serves(0));
	pointer = allocate(&swapped_memory, size);
	fill(pointer, size, seed);
	fake_rooms.submitted++;
	return pointer;
}

/* -- two devices -------------------------------------------------------------------------- */

/* A block as swapped_block() makes one, on that device. */
static inline CUdeviceptr block_on(CUdevice device, size_t size, uint8_t seed)
{
	CUdeviceptr pointer = 0;

	CHECK(swapped_memory.serves(device));
	fake_driver.current = fake_context(device);
	OK(memory_allocate(&swapped_memory, &pointer, size, device, NULL));
	fill(pointer, size, seed);
	fake_rooms.submitted++;
	return pointer;
}

static inline struct gl_memory amount_on(CUdevice device, uint64_t bytes)
{
	struct gl_memory amount = amount_of(bytes);

	memcpy(amount.devices[0].uuid, device_uuid(device), GL_UUID_BYTES);
	return amount;
}

static inline void evict_on(CUdevice device, uint64_t bytes)
{
	struct gl_memory amount = amount_on(device, bytes);

	memory_mover.evict(&amount);
}

/* The lease is over, and all memory of both devices is evicted. */
static inline void hand_both_over(void)
{
	memory_mover.allow_eviction();
	evict_on(0, fake_rooms.limit);
	evict_on(1, fake_rooms.limit);
	step_until_idle();
	CHECK(fake_driver.used[0] == 0 && fake_driver.used[1] == 0);
}

#endif
