/* idle.h: learns how long a program's pauses last, and decides when to give the device up in one.
 */
#ifndef GPU_LEASE_IDLE_H
#define GPU_LEASE_IDLE_H

#include <stdbool.h>
#include <stdint.h>

#define IDLE_FIRST_NS (UINT64_C(16) * 1000000)

/* cffi:begin */
#define IDLE_STEPS 10 /* 16 ms, 32 ms, ... 8 s */

/* By length (16 ms, 32 ms, ...), of the pauses that lasted longer than that: how many were seen,
 * and what it cost on average to go on waiting for their end, as a multiple of a handoff's cost. */
struct idle_history {
	unsigned int seen[IDLE_STEPS];
	float regret[IDLE_STEPS];
};
/* cffi:end */

/* A pause has ended that lasted pause_ns, while a handoff cost handoff_ns. */
void idle_note(struct idle_history *history, uint64_t pause_ns, uint64_t handoff_ns);
/* Should the device be given up in a pause that has lasted so_far_ns? */
bool idle_enough(const struct idle_history *history, uint64_t so_far_ns, uint64_t handoff_ns);

#endif
