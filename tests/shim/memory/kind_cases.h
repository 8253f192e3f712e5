/* kind_cases.h: the cases of kind_contract.c. Each is run for every kind of memory. */
#ifndef KIND_CASES_H
#define KIND_CASES_H

#include "checks.h"
#include "memory/kinds.h"

extern const struct memory_kind *kind; /* that the case is run for */

/* kind_allocation_cases.c */
#define ALLOCATION_CASES(CASE)                                                                     \
	CASE(allocate_and_free)                                                                    \
	CASE(double_free)                                                                          \
	CASE(free_from_another_thread)                                                             \
	CASE(context_gone)                                                                         \
	CASE(stream_order)                                                                         \
	CASE(fork_child)                                                                           \
	CASE(no_bytes)                                                                             \
	CASE(too_many_bytes)                                                                       \
	CASE(few_bytes)                                                                            \
	CASE(addresses_inside)                                                                     \
	CASE(driver_refuses)

/* kind_limit_cases.c */
#define LIMIT_CASES(CASE)                                                                          \
	CASE(limit_reached)                                                                        \
	CASE(others_count)                                                                         \
	CASE(limit_reached_by_several_threads)                                                     \
	CASE(limit_taken_between_check_and_count)                                                  \
	CASE(frees_noted_after_their_pool)                                                         \
	CASE(reclaim_under_pressure)

/* kind_move_cases.c */
#define MOVE_CASES(CASE)                                                                           \
	CASE(changes_are_told)                                                                     \
	CASE(handoff)                                                                              \
	CASE(free_while_others_hold)                                                               \
	CASE(report_adds_up)

#define CASE(name) void name(void);
ALLOCATION_CASES(CASE)
LIMIT_CASES(CASE)
MOVE_CASES(CASE)
#undef CASE

#endif
