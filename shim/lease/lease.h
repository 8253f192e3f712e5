/* lease.h: the lease of this process, from its grant to its release.
 *
 *   NONE -> RESTORING -> OPEN -> CLOSING -> NONE
 *
 * A step of GL_STEP goes from RESTORING straight to CLOSING, and lets one call in there.
 * A refusal ends everything, from any phase.
 *
 * It is a state machine: messages come in, and what follows from them and from the time goes
 * out through the doors of port.h. It makes no system call and knows no thread; the client
 * thread alone calls it.
 */
#ifndef GPU_LEASE_LEASE_H
#define GPU_LEASE_LEASE_H

#include "base/wire.h"
#include "lease/idle.h"

#include <stdbool.h>
#include <stddef.h>

/* cffi:begin */
struct lease_port; /* port.h */

enum lease_phase {
	LEASE_NONE,
	LEASE_RESTORING, /* memory comes back; the gate is shut */
	LEASE_OPEN,
	LEASE_CLOSING, /* the gate is shut, and what was submitted finishes */
	LEASE_ENDED    /* this process will have no lease any more */
};

struct lease_closing {
	enum gl_release_reason reason;
	uint64_t since;     /* when it began, or when the one call could last still come */
	uint64_t step_from; /* when the one call was allowed */
	bool told_stuck;    /* the daemon knows that the work does not finish */
	bool step;          /* one call may enter, or has entered */
	bool drained;       /* the work has finished: memory may leave when nobody is inside */
	bool reopens;       /* it is shut for quiet tasks only */
};

struct lease {
	const struct lease_port *port;
	enum lease_phase phase;
	uint64_t epoch;        /* of the lease, 0 in NONE */
	bool requested;        /* and not yet granted */
	struct gl_grant grant; /* what the daemon said of the lease last */
	bool for_step;         /* RESTORING: for one call */
	struct lease_closing closing;
	bool moving;        /* memory was on its way at the last step */
	int64_t prepare_ns; /* until more host memory can be got ready; 0: there is none to */
	/* Somebody waits for the device: */
	uint64_t idle_ns;    /* release after so much idleness; GL_IDLE_NEVER: nobody waits */
	uint64_t paced_ns;   /* the pace keeps so much work in flight; 0: it does not */
	uint64_t idle_since; /* when a pause began that has not ended, as far as known; else 0 */
	uint64_t handoff_ns; /* what a release during that pause would have cost */
	unsigned long calls; /* submissions when looked at last */
	/* Nobody waits for the device: */
	uint64_t
	    rests_since;  /* when the program was first seen idle; 0: it works, as far as known */
	uint64_t look_at; /* when it is looked at next */
	struct idle_history pauses;
};

/* No lease, and nothing known: also in a forked child. */
void lease_begin(struct lease *lease, const struct lease_port *port);
/* Nothing of a daemon opens the gate any more, and the daemon hears nothing more. */
void lease_end(struct lease *lease);
void lease_hello(struct lease *lease, struct gl_hello *hello); /* fill in its part */
void lease_ask(struct lease *lease); /* for a lease, where threads wait for it */
/* A message with a sound header, of its type's length. */
void lease_take(struct lease *lease, const void *message);
void lease_advance(struct lease *lease);           /* time has passed */
int64_t lease_pause_ns(const struct lease *lease); /* until it should; below 0: nothing is due */
/* Does a thread at the gate wait for the daemon, or for memory? Else for this process itself. */
bool lease_awaited(const struct lease *lease);
void lease_forget_daemon(struct lease *lease); /* the one that knew of the lease is gone */
/* cffi:end */

#define LEASE_INITIAL(doors) {.port = (doors), .idle_ns = GL_IDLE_NEVER}

#endif
