/* barrier.h: memory barriers for other threads of the process (gate_pass() says what for). */
#ifndef GPU_LEASE_BARRIER_H
#define GPU_LEASE_BARRIER_H

#include <stdbool.h>

extern bool gate_needs_fence; /* the kernel has no membarrier */

/* Sets gate_needs_fence, before any thread passes the gate. Only the first call has an effect. */
void gate_barrier_prepare(void);
/* Makes every running thread of the process pass a full memory barrier; without membarrier, the
 * calling thread only. */
void gate_barrier(void);

#endif
