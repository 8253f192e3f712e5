/* fake_rooms.h: fakes of the rooms that shim/memory calls, for tests that link shim/memory alone:
 * the tenant's limits, the gate, contexts and captures. */
#ifndef FAKE_ROOMS_H
#define FAKE_ROOMS_H

#include "tenant/tenant.h"

#include <stdatomic.h>

extern struct fake_rooms {
	uint64_t limit;  /* bytes of each device; NO_LIMIT: the device is not the job's */
	uint64_t others; /* bytes of the job's other processes */
	/* What the daemon has said of the job. */
	bool swaps;
	bool oversub;
	bool cleans;
	bool no_context;         /* the program has none */
	bool stopped;            /* its work stands still in mid-kernel */
	bool waits;              /* whoever unregisters host memory may wait for all of its work */
	unsigned long submitted; /* calls that have passed the gate */
	atomic_uint changes;     /* how often memory_changed() was called */
	unsigned int complaints; /* how often complain() was called */
} fake_rooms;

/* What work/contexts.c does before and after a context is destroyed. */
void fake_context_ends(CUcontext context);
void fake_context_gone(CUcontext context);

#endif
