/* idle.h: how long a program's pauses are, and so whether to wait for the end of one. */
#ifndef GPU_LEASE_IDLE_H
#define GPU_LEASE_IDLE_H

#include <stdbool.h>
#include <stdint.h>

#define IDLE_FIRST_NS (UINT64_C(16) * 1000000)

/* cffi:begin */
#define IDLE_STEPS 10 /* 16 ms, 32 ms, ... 8 s */

/* Of the pauses that were longer than so much: how many were seen, and what it would have
 * cost on average to wait longer for their end, in handoffs. */
struct idle_history {
	unsigned int seen[IDLE_STEPS];
	float regret[IDLE_STEPS];
};
/* cffi:end */

void idle_note(struct idle_history *history, uint64_t pause_ns, uint64_t handoff_ns);
bool idle_enough(const struct idle_history *history, uint64_t so_far_ns, uint64_t handoff_ns);

#endif
