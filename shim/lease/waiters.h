/* waiters.h: an open lease: its pace and its release when idle, while other jobs wait. */
#ifndef GPU_LEASE_WAITERS_H
#define GPU_LEASE_WAITERS_H

#include "lease/lease.h"

/* Does the process want a lease: do threads wait at the gate, or is work stopped? */
bool waiters_want(const struct lease *lease);
/* Work that is stopped in mid-kernel goes on. */
void waiters_end_stop(struct lease *lease);
/* Enters OPEN and opens the gate. Stopped work goes on. */
void waiters_open(struct lease *lease);
/* lease->grant tells anew whether another job waits. */
void waiters_update(struct lease *lease);
/* No other job waits any more. */
void waiters_gone(struct lease *lease);
/* While another job waits: checks whether the program works or pauses now. */
void waiters_note_work(struct lease *lease);
/* While no other job waits: checks from time to time whether the program pauses. A job that comes
 * later then benefits from a pause that began before. */
void waiters_note_rest(struct lease *lease);
/* Forgets when the present pause began. */
void waiters_end_rest(struct lease *lease);
/* Does another job wait, and has the program paused for so long that the lease is to be released?
 */
bool waiters_idle_long_enough(const struct lease *lease);
/* The program goes on: enters the length of the pause, if there was one, into the history. */
void waiters_end_pause(struct lease *lease);
/* ns until the program is to be checked again. */
int64_t waiters_pause_ns(const struct lease *lease);

#endif
