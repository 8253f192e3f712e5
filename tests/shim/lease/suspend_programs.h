/* suspend_programs.h: what a program does about SIGTSTP, and what should come of it. */
#ifndef GPU_LEASE_SUSPEND_PROGRAMS_H
#define GPU_LEASE_SUSPEND_PROGRAMS_H

#include <signal.h>
#include <stdbool.h>

enum last {
	ASK,
	UNBLOCK,            /* the program lets the signal through */
	RESUME_AND_UNBLOCK, /* but a SIGCONT comes before that */
	TYPE,               /* Ctrl-Z in the program's terminal */
};

enum sender {
	ROOT,  /* any process of root's */
	STEPD, /* root's, with slurmstepd's name */
	USER,  /* of the program's own user, who is not root */
};

/* before, after: what the program does before the interposer comes, and after. stops: whether
 * each of three signals stops it. handled: calls of its own handler then. told: how often
 * the daemon has been told. sender: whom the signals come from. last: what comes before that is
 * asked. */
struct one_case {
	const char *name;
	void (*before)(void), (*after)(void);
	enum sender sender;
	bool stops[3];
	int handled, told;
	enum last last;
};

extern volatile sig_atomic_t handled; /* calls of the program's own handler */
extern int to_child[2];               /* a pipe that ends with the program's parent */

const struct one_case *find_case(const char *name);
#define A_USER 1000 /* of no name */

void set_blocked(int how); /* SIGTSTP, for the calling thread: SIG_BLOCK, SIG_UNBLOCK */
void type_control_z(void);

#endif
