/* in_quiet.h: what is done while no work of the process is under way: tasks of the program's
 * threads (gate/quiet.h), and giving up host memory, for which the driver would wait until there is
 * none. */
#ifndef GPU_LEASE_IN_QUIET_H
#define GPU_LEASE_IN_QUIET_H

#include "lease/lease.h"

bool in_quiet_wanted(const struct lease *lease);
/* The gate is shut and no work is in flight. */
void in_quiet_do(struct lease *lease);
/* The gate has been shut for so many ns for that, and work has not finished: gives it up for a
 * while if that is long and no thread of the program waits. Returns whether it has. */
bool in_quiet_gives_up(struct lease *lease, uint64_t passed);
/* In how many ns host memory may be given up: during a lease the gate is shut for it, so that is
 * done seldom. Below 0: there is none. */
int64_t in_quiet_tidy_ns(const struct lease *lease);

#endif
