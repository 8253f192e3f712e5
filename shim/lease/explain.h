/* explain.h: decides when to tell the user why the process waits. Only the client thread calls
 * these functions. */
#ifndef GPU_LEASE_EXPLAIN_H
#define GPU_LEASE_EXPLAIN_H

#include "base/wire.h"

#include <stdbool.h>

/* The state of the process. */
struct explain_view {
	bool waits;  /* a thread of the program waits for the daemon or for the lease */
	bool served; /* the daemon has welcomed the process on this connection */
};

/* What the caller has to do. */
enum explain_step {
	EXPLAIN_NOTHING,
	EXPLAIN_ASK,       /* send GL_WHY */
	EXPLAIN_UNSERVED,  /* tell that there is no daemon, or none that lets the process in */
	EXPLAIN_SILENCE,   /* tell that the daemon has stopped answering */
	EXPLAIN_THE_ANSWER /* tell the daemon's answer: explain_words() */
};

/* Takes note of the state at the time `now` (ns), and returns what to do. */
enum explain_step explain_advance(const struct explain_view *view, uint64_t now);
/* The daemon has answered GL_WHY. */
void explain_answer(const struct gl_waits *waits, uint64_t now);
/* Another daemon serves the process from now on. It does not know what the last one was asked. */
void explain_forget_daemon(uint64_t now);
/* The sentence of the last answer. */
const char *explain_words(void);
/* ns until explain_advance() has something to do; below 0: nothing until the state changes. */
int64_t explain_pause_ns(uint64_t now);

#endif
