/* port.h: the functions through which the lease acts on the rest of the process.
 *
 * The lease (lease.h) calls no other room by name and reads no clock. It uses these structs of
 * functions. process_lease.c fills them with the gate, the contexts, the memory and the client
 * thread of this process; a test fills them with fakes.
 */
#ifndef GPU_LEASE_PORT_H
#define GPU_LEASE_PORT_H

#include "base/wire.h"
#include "channels/stop_phase.h"
#include "gate/gate_step.h"
#include "gate/pace.h"
#include "memory/mover.h"

#include <stdbool.h>
#include <stddef.h>

/* cffi:begin */
struct lease_gate {
	void (*open)(void);
	void (*shut)(void);
	void (*bound)(const struct pace *pace); /* it decides who passes an open gate; NULL: all */
	void (*step)(enum gate_step which);     /* allows one call to pass a shut gate, or none */
	bool (*step_pending)(void);             /* is one call allowed that has not come? */
	bool (*empty)(void);                    /* is nobody inside a shut gate any more? */
	unsigned long (*calls)(void);  /* submissions so far, including those that are inside */
	unsigned long (*graphs)(void); /* of these, launches of graphs */
};

/* The work that the program has submitted (work/drain.h, work/contexts.h). */
struct lease_work {
	bool (*drained)(void); /* has all of it finished? Also notes which contexts are busy */
	bool (*idle)(void);    /* the same without waiting; false if that cannot be known */
	/* Has, as far as the last idle() has found, all finished that there was at a mark? Then the
	 * mark is set anew, behind all that there was at that idle(). */
	bool (*passed)(void);
	/* May a call help that is not for a busy context (GATE_STEP_IDLE), as far as the last
	 * drained() has found? */
	bool (*some_idle)(void);
};

/* Tasks of the program's threads that need a shut gate and no work in flight (gate/quiet.h). */
struct lease_quiet {
	bool (*wanted)(void);
	void (*now)(void); /* does them all */
};

/* Stops in mid-kernel (channels/channels.h). */
struct lease_stops {
	bool (*able)(void);    /* can work be stopped? */
	bool (*paused)(void);  /* does its duty keep work from a device now? */
	void (*prepare)(void); /* makes what movable() needs, while no work is in the way */
	void (*begin)(void);   /* asks for a stop, which ends by itself unless phase() is called */
	enum stop_phase (*phase)(void); /* and the stop lasts for longer */
	/* May memory move during the stop? May take some milliseconds. Afterwards the stop lasts
	 * until end(). */
	bool (*movable)(void);
	void (*end)(void);     /* work goes on */
	void (*give_up)(void); /* the same, as the stop could not be done; it is counted */
};

struct lease_port {
	uint64_t (*now)(void);         /* the monotonic clock, in ns */
	int (*waiting)(void);          /* how many threads wait at the gate */
	unsigned int (*signals)(void); /* how many signals the program has handled so far */
	void (*wake)(void);            /* makes them check the gate again */
	void (*send)(const void *message, size_t size);
	void (*send_memory)(void); /* sends MEMORY, if the daemon does not know the latest */
	bool (*swaps)(void);       /* is memory swapped, so that the daemon expects RESTORED? */
	const struct lease_gate *gate;
	const struct pace *pace;
	const struct lease_work *work;
	const struct mover *mover;
	const struct lease_quiet *quiet;
	const struct lease_stops *stops;
};
/* cffi:end */

#endif
