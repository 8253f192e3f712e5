/* odd.h: what the scenarios of odd_programs.c share. */
#ifndef ODD_H
#define ODD_H

#include "races.h"

#define MOST_FILES 64

CUresult submit(void);                  /* something that waits at the gate */
int descriptors(int found[MOST_FILES]); /* those that are open; returns how many */

/* odd_descriptors.c: */
#define DESCRIPTOR_SCENARIOS(SCENARIO)                                                             \
	SCENARIO("files in their place", files_in_their_place)                                     \
	SCENARIO("sockets in their place", sockets_in_their_place)                                 \
	SCENARIO("cut off", cut_off)                                                               \
	SCENARIO("without standard output", without_standard_output)
/* odd_limits.c: */
#define LIMIT_SCENARIOS(SCENARIO)                                                                  \
	SCENARIO("may open no more", may_open_no_more)                                             \
	SCENARIO("may not poll", may_not_poll)                                                     \
	SCENARIO("has no descriptor left", has_no_descriptor_left)                                 \
	SCENARIO("gets no thread", gets_no_thread)                                                 \
	SCENARIO("has all keys", has_all_keys)                                                     \
	SCENARIO("clock is set back", clock_is_set_back)
/* odd_waits.c: */
#define WAIT_SCENARIOS(SCENARIO)                                                                   \
	SCENARIO("waits are left by longjmp", waits_are_left_by_longjmp)                           \
	SCENARIO("waits are left by pthread_exit", waits_are_left_by_pthread_exit)                 \
	SCENARIO("waits are interrupted", waits_are_interrupted)
/* odd_ends.c: */
#define END_SCENARIOS(SCENARIO)                                                                    \
	SCENARIO("child of clone", child_of_clone)                                                 \
	SCENARIO("child of clone submits", child_of_clone_submits)                                 \
	SCENARIO("main thread ends", main_thread_ends)

#define SCENARIO(name, run) void run(void);
DESCRIPTOR_SCENARIOS(SCENARIO)
LIMIT_SCENARIOS(SCENARIO)
END_SCENARIOS(SCENARIO)
WAIT_SCENARIOS(SCENARIO)
#undef SCENARIO

#endif
