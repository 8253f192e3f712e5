/* closing.h: the gate is shut, and stays so until all work has finished. */
#ifndef GPU_LEASE_CLOSING_H
#define GPU_LEASE_CLOSING_H

#include "lease/lease.h"

void closing_begin(struct lease *lease, enum gl_release_reason reason);
void closing_begin_step(struct lease *lease); /* for one call that may enter */
void closing_advance(struct lease *lease);
void closing_withdraw_step(struct lease *lease); /* the one call need not come any more */
int64_t closing_pause_ns(const struct lease *lease);

#endif
