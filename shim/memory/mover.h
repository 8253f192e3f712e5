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
/* Bytes that came back and how long that took, which tells the link's speed. Bytes 0: unknown. */
struct moved {
	uint64_t bytes, ns;
};

struct mover {
	/* The lease is granted: memory that is away comes back, and of the memory that others
	 * have displaced as much as the grant says. NULL: the lease is for one call only, so only
	 * memory that the call cannot do without. */
	void (*restore)(const struct gl_grant *grant);
	/* Is all of that on the device? Then the restore is over, and the gate may open. */
	bool (*restored)(void);
	/* While the program works: so much of the memory that others have displaced comes back. */
	void (*refill)(const struct gl_grant *grant);
	/* The gate is shut and all work has finished: memory may leave from now on, once
	 * nobody is inside the gate. False: this memory never leaves. */
	bool (*let_go)(void);
	/* So much leaves; so much comes back before the lease; so much may have to leave soon. */
	void (*evict)(const struct gl_memory *amounts);
	void (*leave)(void); /* all that can leaves, for nobody in particular */
	void (*preload)(const struct gl_memory *amounts);
	void (*expect)(const struct gl_memory *amounts);
	/* So much may have to leave some time: the host has memory for it, and for no more. */
	void (*ahead)(const struct gl_memory *amounts);
	/* One step of getting ready for both. Ns until the next one; below 0: there is none. */
	int64_t (*prepare)(void);
	bool (*step)(void);            /* is anything under way? */
	int64_t (*pause_ns)(void);     /* until the next step can do something */
	void (*stop)(void);            /* begins nothing more; copies under way finish */
	struct moved (*brought)(void); /* by the last restore or refill; returned once */
};
/* cffi:end */

/* mover.c: all kinds of memory together (kind.h), for the lease. */
extern const struct mover memory_mover;

#endif
