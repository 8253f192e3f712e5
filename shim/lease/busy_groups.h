/* busy_groups.h: how many channel groups of this process have work at once.
 *
 * A context has a channel group for its kernels, with a time slice of its own. The daemon says what
 * slice the process has, so it is divided among the groups that have work.
 */
#ifndef GPU_LEASE_BUSY_GROUPS_H
#define GPU_LEASE_BUSY_GROUPS_H

/* Notes what the last contexts_poll() has found. Of the client thread. */
void busy_groups_note(void);

#endif
