/* suspend_programs.h: what a program does about SIGTSTP, and what should come of it. */
#ifndef GPU_LEASE_SUSPEND_PROGRAMS_H
#define GPU_LEASE_SUSPEND_PROGRAMS_H

#include <signal.h>
#include <stdbool.h>

enum last {
	ASK,
	UNBLOCK,            /* the program lets the signal through */
	RESUME_AND_UNBLOCK, /* but a SIGCONT comes before that */
};

/* before, after: what the program does before the interposer comes, and after. stops: whether
 * each of three signals stops it. handled: calls of its own handler then. told: how often
 * the daemon has been told. stepd: the signals come from slurmstepd. last: what
 * comes before that is asked. */
struct one_case {
	const char *name;
	void (*before)(void), (*after)(void);
	bool stepd, stops[3];
	int handled, told;
	enum last last;
};

extern volatile sig_atomic_t handled; /* calls of the program's own handler */

const struct one_case *find_case(const char *name);
void set_blocked(int how); /* SIGTSTP, for the calling thread: SIG_BLOCK, SIG_UNBLOCK */

#endif
