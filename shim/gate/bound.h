/* bound.h: how much work may be in flight while somebody waits. */
#ifndef GPU_LEASE_BOUND_H
#define GPU_LEASE_BOUND_H

#include <stdint.h>

void bound_begin(uint64_t ns); /* somebody waits: so much work at most */
int bound_draw(void); /* waits for room; calls that may pass now, 0: look at the gate again */

#endif
