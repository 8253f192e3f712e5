/* signal_sender.h: has slurmstepd sent a signal? */
#ifndef GPU_LEASE_SIGNAL_SENDER_H
#define GPU_LEASE_SIGNAL_SENDER_H

#include <signal.h>
#include <stdbool.h>

/* Before the first question: looks at our user namespace. */
void signal_sender_init(void);
/* Async-signal-safe, for the handler of a signal. */
bool signal_is_slurmstepds(const siginfo_t *info);

#endif
