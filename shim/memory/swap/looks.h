/* looks.h: which segments are what their copies are, so that they leave without another copy.
 *
 * Before segments of a device leave they are looked at: the device computes their fingerprints.
 * A segment whose fingerprint is that of the bytes in its copy is clean. One that was found
 * changed twice in a row is left alone for a while, the longer the more often that has happened.
 *
 * Looks are at work on a device with the gate shut and empty and all work finished, as evictions
 * are. The client thread calls these; each with a context of the device current.
 */
#ifndef GPU_LEASE_LOOKS_H
#define GPU_LEASE_LOOKS_H

#include "memory/swap/copier.h"

/* Before the next segment leaves: begins a look at it and at those that leave after it, where
 * one is due. True: wait, fingerprints are on their way. */
bool looks_go_on(struct copier *copier);
bool looks_settle(struct copier *copier); /* takes in what has arrived; false: some is to come */
void looks_end(struct copier *copier);    /* its context is about to end */

/* Caller holds swap_lock. Is the segment known to be what its copy is? */
enum gl_clean looks_clean(void); /* in this process; of any thread */
bool segment_clean(const struct segment *segment);
/* A copy of the segment is being made, and has been made. */
void segment_copy_begins(struct segment *segment);
void segment_copy_ended(struct segment *segment);

#endif
