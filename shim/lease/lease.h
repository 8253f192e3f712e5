/* lease.h: the lease of this process, from its grant to its release.
 *
 *   NONE -> RESTORING -> OPEN -> CLOSING -> NONE
 *
 * A lease for one call (GL_STEP) goes from RESTORING straight to CLOSING, where the call is let in.
 * A refusal leads from any phase to ENDED.
 *
 * The lease is a pure state machine. It is given messages and told that time has passed, and acts
 * through the functions of port.h. It makes no system call and starts no thread. Only the client
 * thread calls it.
 */
#ifndef GPU_LEASE_LEASE_H
#define GPU_LEASE_LEASE_H

#include "base/wire.h"
#include "lease/bursts.h"
#include "lease/idle.h"

#include <stdbool.h>
#include <stddef.h>

/* cffi:begin */
struct lease_port; /* port.h */

enum lease_phase {
	LEASE_NONE,
	LEASE_RESTORING, /* memory is being restored; the gate is shut */
	LEASE_OPEN,
	LEASE_CLOSING, /* the gate is shut, and submitted work is finishing */
	LEASE_ENDED    /* this process will get no lease any more */
};

enum lease_stop {
	LEASE_RUNS,     /* nothing is stopped */
	LEASE_STOPPING, /* a stop has been asked for, in CLOSING */
	LEASE_STOPPED   /* the work stands still, until the next lease is open */
};

/* Times are of the monotonic clock, in ns. */
struct lease_closing {
	uint64_t since;     /* when it began, or when the one call was still expected */
	uint64_t step_from; /* when the one call was allowed */
	bool told_stuck;    /* STUCK has been sent */
	bool step;          /* one call may enter, or has entered */
	bool drained;       /* the work has finished: memory may be evicted once nobody is inside */
	bool reopens;       /* the gate is shut for quiet tasks only */
	bool silent;        /* there is no lease: what went on without a daemon is to stand still */
	uint64_t stop_at;   /* ns after `since`: when the work is stopped next */
	uint64_t stop_pause; /* from a stop that has failed until the next one; 0: none has */
	uint64_t stop_seen;  /* when a stop that has been asked for was looked at last */
	uint64_t stop_ns;    /* how long it has lasted, of each look STOP_LOOK_NS at most */
	bool any_step;       /* the one call may be for a busy context */
	uint64_t any_at;     /* ns after `since`: when a call for a busy context is let in next */
	uint64_t any_pause;  /* ns from then until the one after it */
};

struct lease {
	const struct lease_port *port;
	enum lease_phase phase;
	uint64_t epoch; /* of the lease; 0 in NONE */
	bool requested; /* REQUEST has been sent, and no GRANT has come */
	/* How many signals had been handled when the gate was last opened, and when SIGNALLED was
	 * last sent. */
	unsigned int signals, signals_told;
	bool patient; /* the lease was granted after a signal: earlier pauses do not count */
	struct gl_grant grant; /* the last GRANT or RESTORE, with what CONTENDED has changed */
	enum lease_stop stop;  /* of the work in mid-kernel */
	bool left;             /* ... and memory that it needs was told to leave */
	bool resumed;          /* in RESTORING: stopped work goes on already */
	uint64_t alone_since;  /* when the daemon was lost; 0: there is one */
	bool alone;            /* stopped work has gone on without a daemon */
	bool for_step;         /* in RESTORING: the lease is for one call */
	struct lease_closing closing;
	bool moving;        /* memory was being moved at the last step */
	int64_t prepare_ns; /* until more host memory can be prepared; 0: no more is needed */
	bool tells_ready;   /* ... and then READY is to be said */
	uint64_t tidy_at, tidy_pause_ns; /* when the gate may be shut to give up host memory */
	/* While another job waits: */
	uint64_t idle_ns;    /* release after this much idleness; GL_IDLE_NEVER: no job waits */
	uint64_t paced_ns;   /* the pace keeps this much work in flight; 0: there is no pace */
	uint64_t idle_since; /* when the program's present pause began; 0: it works */
	uint64_t handoff_ns; /* the cost of a handoff during that pause */
	unsigned long calls; /* submissions at the last check */
	/* While no other job waits: */
	uint64_t rests_since; /* when the program's present pause began; 0: it works */
	uint64_t look_at;     /* when to check next whether the program pauses */
	struct idle_history pauses;
	/* How much of the time the process has unfinished work, for who asks (GL_MEASURE). */
	uint64_t sample_until, sampled_at;    /* until when samples are taken; the last one, or 0 */
	bool sample_paused;                   /* at the last one its duty kept it from a device */
	unsigned long sampled_calls;          /* submissions until then */
	struct gl_done done, marked;          /* what has finished; what there was at the mark */
	bool sample_worked;                   /* it found unfinished work, or submissions */
	uint64_t busy_ns, seen_ns, wanted_ns; /* as in GL_PROGRESS */
	uint64_t n_bursts;                    /* the same */
	uint64_t watched_until;               /* until then RESTS and WORKS are said (GL_WATCH) */
	struct bursts bursts;
};

/* Initialises a lease in NONE, also in a forked child. */
void lease_begin(struct lease *lease, const struct lease_port *port);
/* A move, or a save, begins: once nothing is left to do for it without the daemon, READY is said.
 * false: it is over. */
void lease_moves(struct lease *lease, bool moves);
/* Goes to ENDED: the gate is shut for ever, and nothing more is sent. */
void lease_end(struct lease *lease);
/* May a HELLO be sent to a new daemon? Not while work goes on that the former one has seen stopped:
 * it is stopped first. */
bool lease_may_greet(struct lease *lease);
/* Fills in held_epoch and flags of a HELLO. */
void lease_hello(struct lease *lease, struct gl_hello *hello);
/* Sends REQUEST, if it wants one and none has been sent. */
void lease_ask(struct lease *lease);
/* Sends SIGNALLED, if a lease has been requested and the program has handled a signal since the
 * gate was opened. */
void lease_tell_signals(struct lease *lease);
/* Does the process keep to its duty: may its work run, and will it not have to finish soon? */
bool lease_keeps_duty(const struct lease *lease);
/* Does this process wait, or does another job wait for its lease? */
bool lease_is_wanted(const struct lease *lease);
/* Handles a message of the daemon. The caller has checked its header and its length. */
void lease_take(struct lease *lease, const void *message);
/* Does what is due by now. */
void lease_advance(struct lease *lease);
/* ns until lease_advance() has something to do; below 0: nothing until a message or a wake. */
int64_t lease_pause_ns(const struct lease *lease);
/* Do threads at the gate wait for the daemon or for memory? Otherwise the gate is open, or shut
 * only until work of this process has finished. */
bool lease_awaited(const struct lease *lease);
/* Fills in the times of a PROGRESS. Samples are taken for another second. */
void lease_measure(struct lease *lease, struct gl_progress *progress);
/* The daemon that knew of the lease is gone. A holder keeps its lease. */
void lease_forget_daemon(struct lease *lease);
/* The process cannot hear a daemon that may be there, to which it has ended: a holder gives up. */
void lease_give_up(struct lease *lease);
/* cffi:end */

#define LEASE_INITIAL(doors) {.port = (doors), .idle_ns = GL_IDLE_NEVER}

#endif
