/* port.h: the doors through which the lease acts on the rest of the process.
 *
 * The lease (lease.h) calls nothing by name and reads no clock. What it needs stands here, as
 * structs of functions: process_lease.c fills them with the gate, the contexts, the memory and the
 * client thread of this process, and a test fills them with fakes.
 */
#ifndef GPU_LEASE_PORT_H
#define GPU_LEASE_PORT_H

#include "base/wire.h"
#include "gate/pace.h"
#include "memory/mover.h"

#include <stdbool.h>
#include <stddef.h>

/* cffi:begin */
struct lease_gate {
	void (*open)(void);
	void (*shut)(void);
	void (*bound)(const struct pace *pace); /* an open gate: it says who passes; NULL: all do */
	void (*step)(bool allowed); /* one call may pass a shut gate; or not, if it has not yet */
	bool (*step_pending)(void);
	bool (*empty)(void);          /* a shut gate: nobody is inside any more */
	unsigned long (*calls)(void); /* submissions so far, those that go on included */
};

/* What the program has submitted. */
struct lease_work {
	bool (*drained)(void);   /* it has all finished; sees which contexts are busy, too */
	bool (*idle)(void);      /* the same, where it can be known without waiting */
	bool (*some_idle)(void); /* the last drained() has seen a context that is not busy */
};

/* Tasks of the program's threads that need a shut gate and no work under way (quiet.h). */
struct lease_quiet {
	bool (*wanted)(void);
	void (*now)(void); /* it is quiet: do all that there are */
};

struct lease_port {
	uint64_t (*now)(void); /* ns */
	int (*waiting)(void);  /* threads at the gate */
	void (*wake)(void);    /* they check the gate again */
	void (*send)(const void *message, size_t size);
	void (*send_memory)(void); /* what the daemon does not know of it yet */
	bool (*swaps)(void);       /* the daemon wants to hear when all memory is back */
	const struct lease_gate *gate;
	const struct pace *pace;
	const struct lease_work *work;
	const struct mover *mover;
	const struct lease_quiet *quiet;
};
/* cffi:end */

#endif
