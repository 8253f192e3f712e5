/* shortage.h: retries an allocation of the driver's while other jobs' swapped memory fills the
 * device: the daemon is told how much is needed, and lets the other jobs evict.
 */
#ifndef GPU_LEASE_SHORTAGE_H
#define GPU_LEASE_SHORTAGE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define EVICTION_WAIT_NS                                                                           \
	(UINT64_C(10) * 1000000000) /* how long to wait for other jobs to evict                    \
	                             */
#define EVICTION_PAUSE_US 500       /* between two attempts */

/* State of one allocation. All zero before the first attempt. */
struct shortage {
	int64_t bytes;  /* that the daemon has been told of; 0: none */
	uint64_t since; /* now_ns() - since: how long it has been tried with a lease */
};
/* Called after each attempt to allocate `size` bytes, by a thread of the program without locks. May
 * wait for the lease. Returns true if the device was full and the caller shall try again; false if
 * `result` is final. */
bool shortage_wait(struct shortage *shortage, CUresult result, CUdevice device, uint64_t size);

/* The same for who has memory that counts already, and may not wait for the lease: pauses before
 * the next attempt, and returns true; false: others have had their time. *since: now_ns() before
 * the first attempt. */
bool shortage_pause(uint64_t *since);

/* Of the client thread: while the daemon is away nobody lets other jobs evict, so that the time for
 * it begins when the daemon is there again. */
void shortage_daemon_away(bool away);

#endif
