/* races.h: what the scenarios of shim_races.c share. */
#ifndef RACES_H
#define RACES_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>

#define MIB ((size_t)1 << 20)
#define SOON_MS 300 /* much longer than what goes on meanwhile takes */
#define OK(call)                                                                                   \
	do {                                                                                       \
		CUresult ok_result = (call);                                                       \
		if (ok_result)                                                                     \
			fail(#call, (int)ok_result);                                               \
	} while (0)

/* tests/emugpu/abi/hold.c */
void emugpu_hold(const char *call, int ms);
int emugpu_held(void);
int emugpu_met(void);
void emugpu_let(void);
#undef cuCtxCreate_v2
CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);

/* races.c */
struct other {
	pthread_t thread;
	void (*body)(struct other *);
	atomic_int id; /* the kernel's, 0: not yet */
	CUresult result;
	CUdeviceptr pointer;
	CUcontext context;
};
void start(struct other *other, void (*body)(struct other *));
void until_waiting(struct other *other); /* for another thread, in a lock or for a condition */
void set_up(void);                       /* with the primary context current */
void held(void);                         /* wait until a thread is held in the call */
void say(const char *what);              /* to the test */
void wait_for_test(void);
_Noreturn void fail(const char *what, int number);

/* The scenarios, and what the test calls them. memory_races.c: */
#define MEMORY_SCENARIOS(SCENARIO)                                                                 \
	SCENARIO("cancelled while it waits", cancelled_while_it_waits)                             \
	SCENARIO("plain at once", plain_at_once)                                                   \
	SCENARIO("ordered at once", ordered_at_once)                                               \
	SCENARIO("swapped at once", swapped_at_once)                                               \
	SCENARIO("physical at once", physical_at_once)                                             \
	SCENARIO("arrays at once", arrays_at_once)                                                 \
	SCENARIO("ends before memory comes", ends_before_memory_comes)                             \
	SCENARIO("ends as memory comes", ends_as_memory_comes)
/* context_races.c: */
#define CONTEXT_SCENARIOS(SCENARIO)                                                                \
	SCENARIO("a capture ends meanwhile", capture_ends_meanwhile)                               \
	SCENARIO("a capture begins meanwhile", capture_begins_meanwhile)                           \
	SCENARIO("released, not for the last time", released_not_for_the_last_time)
/* drain_races.c: */
#define DRAIN_SCENARIOS(SCENARIO)                                                                  \
	SCENARIO("exits while it drains", exits_while_it_drains)                                   \
	SCENARIO("drains a crowd", drains_a_crowd)

#define SCENARIO(name, run) void run(void);
MEMORY_SCENARIOS(SCENARIO)
CONTEXT_SCENARIOS(SCENARIO)
DRAIN_SCENARIOS(SCENARIO)
#undef SCENARIO

#endif
