/* copy_space.h: host memory for copies is made ready before segments are evicted, and given up when
 * it is not needed any more.
 *
 * The client thread calls these functions, without swap_lock.
 */
#ifndef GPU_LEASE_COPY_SPACE_H
#define GPU_LEASE_COPY_SPACE_H

#include "base/wire.h"

#include <stdbool.h>
#include <stdint.h>

/* What struct mover promises of its members with these names. */
void copy_space_expect(const struct gl_memory *amounts);
void copy_space_keep(const struct gl_memory *amounts);
int64_t copy_space_prepare(void);
bool copy_space_has_excess(void);
void copy_space_give_up_excess(int64_t ns);
/* Looks whether there is any; while something is moved, or work stands still, there is none. */
void copy_space_look(bool idle);

#endif
