/* waiters.h: an open lease, and what it owes to those who wait for the device. */
#ifndef GPU_LEASE_WAITERS_H
#define GPU_LEASE_WAITERS_H

#include "lease/lease.h"

void waiters_open(struct lease *lease);   /* the gate opens */
void waiters_update(struct lease *lease); /* takes over from the grant whether somebody waits */
void waiters_gone(struct lease *lease);
/* While somebody waits: note whether the program works or pauses now. */
void waiters_note_work(struct lease *lease);
/* While nobody waits, seldom: note since when the program has been idle, so that whoever comes need
 * not wait until a pause that began long ago is noticed. */
void waiters_note_rest(struct lease *lease);
void waiters_end_rest(struct lease *lease); /* what was known of a pause holds no more */
/* While somebody waits: has the device been idle for so long that the lease is to be released? */
bool waiters_idle_long_enough(const struct lease *lease);
void waiters_end_pause(struct lease *lease); /* the program goes on, after a pause or none */
int64_t waiters_pause_ns(const struct lease *lease); /* until the program is to be looked at */

#endif
