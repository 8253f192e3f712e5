/* explain.h: when the user is to be told why the process waits (explain.c); the client thread
 * alone. */
#ifndef GPU_LEASE_EXPLAIN_H
#define GPU_LEASE_EXPLAIN_H

#include "base/wire.h"

#include <stdbool.h>

/* How things are. */
struct explain_view {
	bool waits;   /* a thread of the program does, for the daemon or for the lease */
	bool served;  /* the daemon has welcomed the process on this connection */
	bool can_ask; /* and answers GL_WHY */
};

/* What is to be done about it. */
enum explain_step {
	EXPLAIN_NOTHING,
	EXPLAIN_ASK,       /* the daemon: GL_WHY */
	EXPLAIN_UNSERVED,  /* say that there is no daemon, or none that lets the process in */
	EXPLAIN_SILENCE,   /* say that the daemon has stopped answering */
	EXPLAIN_THE_ANSWER /* say what the daemon has answered: explain_words() */
};

enum explain_step explain_advance(const struct explain_view *view, uint64_t now);
void explain_answer(const struct gl_waits *waits, uint64_t now);
const char *explain_words(void);
int64_t explain_pause_ns(uint64_t now); /* until explain_advance() makes sense; below 0: never */

#endif
