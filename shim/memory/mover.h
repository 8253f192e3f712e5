/* mover.h: memory that leaves the devices for others and comes back, as the lease asks for it.
 *
 * The client thread alone calls these, and none of them waits: what takes time goes on
 * in steps, between which the client thread hears the daemon.
 */
#ifndef GPU_LEASE_MOVER_H
#define GPU_LEASE_MOVER_H

#include "base/wire.h"

#include <stdbool.h>
#include <stdint.h>

/* cffi:begin */
/* Bytes that came, and how long that took: how fast the link is. Bytes 0: nothing is known. */
struct moved {
	uint64_t bytes, ns;
};

struct mover {
	/* The lease is granted: what is away comes, and of what others have displaced as
	 * much as the grant says. NULL: for one call only, what cannot be done without. */
	void (*restore)(const struct gl_grant *grant);
	/* Is all of it there? Then the restore is over, and the gate may open. */
	bool (*restored)(void);
	/* Beside the program's work: of what others have displaced so much comes back. */
	void (*refill)(const struct gl_grant *grant);
	/* The gate is shut and all work has finished: memory may leave from now on, once
	 * nobody is inside. False: none ever does. */
	bool (*let_go)(void);
	/* So much leaves; so much comes before its turn; so much may have to leave soon. */
	void (*evict)(const struct gl_memory *amounts);
	void (*leave)(void); /* all that can leaves, for nobody in particular */
	void (*preload)(const struct gl_memory *amounts);
	void (*expect)(const struct gl_memory *amounts);
	void (*prepare)(void);         /* one step of getting ready for what is expected */
	bool (*step)(void);            /* is anything under way? */
	int64_t (*pause_ns)(void);     /* until the next step makes sense */
	void (*stop)(void);            /* nothing more is begun; what is under way arrives */
	struct moved (*brought)(void); /* by the last restore or refill; said once */
};
/* cffi:end */

/* mover.c: all kinds of memory together (kind.h), for the lease. */
extern const struct mover memory_mover;

#endif
