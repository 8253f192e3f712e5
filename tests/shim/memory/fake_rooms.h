/* fake_rooms.h: what the memory of the interposer asks of the parts around it, for tests that
 * link shim/memory alone: the tenant's limits, the gate, contexts and captures. */
#ifndef FAKE_ROOMS_H
#define FAKE_ROOMS_H

#include "tenant/tenant.h"

#include <stdatomic.h>

extern struct fake_rooms {
	uint64_t limit;  /* of each device; NO_LIMIT: it is not the job's */
	uint64_t others; /* bytes of the job's other processes */
	bool swaps;      /* what the daemon said of the job */
	bool oversub;
	bool cleans;
	unsigned long submitted; /* calls that passed the gate */
	atomic_uint changes;     /* of memory, that the daemon would hear of */
	unsigned int complaints;
} fake_rooms;

/* What work/contexts.c does when one is destroyed. */
void fake_context_ends(CUcontext context);
void fake_context_gone(CUcontext context);

#endif
