/* suspend.h: Slurm announces that it will stop this process. */
#ifndef GPU_LEASE_SUSPEND_H
#define GPU_LEASE_SUSPEND_H

/* Installs a handler for slurmstepd's SIGTSTP, unless the program has one of its own. A thread of
 * the program calls it, when the client thread starts. */
void suspend_watch(void);
/* The client thread: sends SUSPENDS once for each announcement, to a daemon that understands it. */
void suspend_speak(void);
/* The client thread: the daemon is gone, and the next one has to be told. */
void suspend_forget_daemon(void);

#endif
