/* closing.h: the phase CLOSING: the gate is shut until all submitted work has finished. */
#ifndef GPU_LEASE_CLOSING_H
#define GPU_LEASE_CLOSING_H

#include "lease/lease.h"

/* Shuts the gate and enters CLOSING. */
void closing_begin(struct lease *lease);
/* The daemon waits for so long; other jobs get the devices after as long again. */
void closing_limit(struct lease *lease, uint64_t ns);
/* Shuts the gate and enters CLOSING, but one call may enter. */
void closing_begin_step(struct lease *lease);
/* Checks the work, and releases the lease once all has finished. */
void closing_advance(struct lease *lease);
/* The one call may not enter any more. */
void closing_withdraw_step(struct lease *lease);
/* ns until closing_advance() is due. */
int64_t closing_pause_ns(const struct lease *lease);

#endif
