/* rest.h: while the job moves to another GPU, or is saved, host memory is not registered with the
 * driver, whose checkpoint takes longer by all that is: by more than it takes to register it again.
 *
 * The driver waits for all work and all copies before it unregisters some. So nothing rests while
 * either is under way; but while a carrier takes memory away, whose copies are not the process's.
 * It is registered again when its bytes go back to the device, beside the copies of others
 * (store.h, `pin`). */
#ifndef GPU_LEASE_REST_H
#define GPU_LEASE_REST_H

#include <stdbool.h>

/* The client thread calls these, without any lock. */

/* From now on chunks rest, or do no longer. */
void chunks_rest(bool rest);
/* One step of it, after those of the lanes. Returns true if more steps are needed. */
bool chunks_rest_step(void);

#endif
