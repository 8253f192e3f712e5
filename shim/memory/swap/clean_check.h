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

#include "base/wire.h"
#include "memory/swap/fingerprinter.h"

#include <stdbool.h>

#define CHECKED_AT_ONCE 128

struct lane;
struct segment;

/* The segments of a lane that are being checked now. */
struct check {
	struct fingerprinter fingerprinter;
	struct {
		struct segment *segment;
		size_t first; /* for fingerprinter_read() */
	} segments[CHECKED_AT_ONCE];
	unsigned int n;
	unsigned long began_at; /* gate_submitted() when the check began */
};

/* Before the next segment is evicted: begins to check it and those that follow it, if it needs a
 * check. Returns true if the eviction has to wait for fingerprints. */
bool clean_check_before_evicting(struct lane *lane);
/* Stores the fingerprints that the device has computed. Returns false if it still computes some. */
bool clean_check_finish(struct lane *lane);
/* The context is about to end. May be called by a thread of the program, as copiers are used. */
void clean_check_end(struct lane *lane);

/* Are segments of this process checked, and if not, why? Any thread may ask. */
enum gl_clean clean_status(void);
/* A copy of the segment is about to be made, or is complete. The caller is moving it. */
void segment_copy_begins(struct segment *segment);
void segment_copy_ended(struct segment *segment);

#endif
