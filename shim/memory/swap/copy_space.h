/* copy_space.h: host memory for copies is made ready before segments are evicted, and given up when
 * it is not needed any more.
 *
 * The client thread calls these functions, without swap_lock.
 */
#ifndef GPU_LEASE_COPY_SPACE_H
#define GPU_LEASE_COPY_SPACE_H

#include "base/wire.h"

#include <stdint.h>

/* What struct mover promises of its members with these names. */
void copy_space_expect(const struct gl_memory *amounts);
void copy_space_keep(const struct gl_memory *amounts);
int64_t copy_space_prepare(void);
/* Gives up host memory beyond what all swapped memory would need. */
void copy_space_trim(void);

#endif
