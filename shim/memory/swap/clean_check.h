/* clean_check.h: finds segments that still equal their copies, so that no new copy is made.
 *
 * Before segments are evicted the device computes their fingerprints. A segment whose fingerprint
 * equals that of the bytes in its copy is clean. A segment that was found changed twice in a row is
 * not checked for a number of evictions, which grows each time.
 *
 * Checks run while the gate is shut and empty and all work has finished, as evictions do. The
 * client thread calls these functions with a context of the device current and without swap_lock,
 * unless they say otherwise.
 */
#ifndef GPU_LEASE_CLEAN_CHECK_H
#define GPU_LEASE_CLEAN_CHECK_H

#include "memory/swap/copier.h"

/* Before the next segment is evicted: begins to check it and those that follow it, if it needs a
 * check. Returns true if the eviction has to wait for fingerprints. */
bool clean_check_before_evicting(struct copier *copier);
/* Stores the fingerprints that the device has computed. Returns false if it still computes some. */
bool clean_check_finish(struct copier *copier);
/* The context is about to end. May be called by a thread of the program, as copiers are used. */
void clean_check_end(struct copier *copier);

/* Are segments of this process checked, and if not, why? Any thread may ask. */
enum gl_clean clean_status(void);
/* Is the segment known to equal its copy? The caller holds swap_lock. */
bool segment_is_clean(const struct segment *segment);
/* A copy of the segment is about to be made, or is complete. */
void segment_copy_begins(struct segment *segment);
void segment_copy_ended(struct segment *segment);

#endif
