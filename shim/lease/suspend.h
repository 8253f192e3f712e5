/* suspend.h: Slurm announces that it will stop this process. */
#ifndef GPU_LEASE_SUSPEND_H
#define GPU_LEASE_SUSPEND_H

/* Listen for slurmstepd's SIGTSTP, where nobody else does. A thread of the program calls it. */
void suspend_watch(void);
/* Of the client thread: gpu-leased, which can be told so, hears of it once. */
void suspend_speak(void);
/* Who has heard of it is gone. */
void suspend_forget_daemon(void);

#endif
