/* drain_races.c: threads in the driver and at the gate while the process drains. */
#include "races.h"

#include <unistd.h>

/* The process ends while the thread that speaks with gpu-leased is in the driver. */
void exits_while_it_drains(void)
{
	CUdeviceptr pointer;

	set_up();
	OK(cuMemAlloc(&pointer, MIB));
	OK(cuMemsetD8(pointer, 1, MIB));
	emugpu_hold("cuCtxRecordEvent", SOON_MS);
	say("ready"); /* to be revoked */
	held();
}

static int told[2];

static void until_told(void *ignored)
{
	char byte;

	(void)ignored;
	if (read(told[0], &byte, 1) != 1)
		fail("a pipe", 0);
}

static void sets(struct other *other)
{
	OK(cuMemsetD8(other->pointer, 2, 4096));
}

/* One thread is in the driver, another one waits at the gate, and their context is busy. */
void drains_a_crowd(void)
{
	struct other in_driver = {0}, at_gate = {0};
	CUdeviceptr pointer;

	set_up();
	OK(cuMemAlloc(&pointer, 4096));
	OK(cuMemsetD8(pointer, 1, 4096));
	if (pipe(told))
		fail("pipe", 0);
	OK(cuLaunchHostFunc(NULL, until_told, NULL));
	in_driver.pointer = at_gate.pointer = pointer;
	emugpu_hold("cuMemsetD8_v2", 0);
	start(&in_driver, sets);
	held();
	say("busy"); /* to be revoked */
	wait_for_test();
	start(&at_gate, sets);
	until_waiting(&at_gate);
	say("waits");
	wait_for_test();
	if (write(told[1], "x", 1) != 1)
		fail("a pipe", 0);
	emugpu_let();
	pthread_join(in_driver.thread, NULL);
	pthread_join(at_gate.thread, NULL);
	wait_for_test();
}
