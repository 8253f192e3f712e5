/* carrier_cases.c: a carrier takes memory away, and ends when it should not. */
#include "mover_cases.h"

#include "memory/carried.h"

#include <sys/socket.h>
#include <unistd.h>

#define ALL (24 * MIB) /* six segments */

/* It is asked for all of them, and answers none. */
void what_a_carrier_does_not_take_goes_by_the_host(void)
{
	CUdeviceptr pointer;
	int ends[2];

	hold();
	pointer = swapped_block(ALL, 1);
	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
	carried_meet(ends[0]);
	memory_mover.allow_eviction();
	memory_mover.evict_all();
	for (int i = 0; i < 100; i++)
		CHECK(memory_mover.step());
	CHECK(fake_driver.used[0] == ALL && !fake_driver.copied_out);
	close(ends[1]);
	step_until_idle();
	CHECK(fake_driver.used[0] == 0 && fake_driver.copied_out == ALL);
	hold();
	CHECK(filled(pointer, ALL, 1));
}
