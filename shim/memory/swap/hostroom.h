/* hostroom.h: is there room for more memory on the host? */
#ifndef GPU_LEASE_HOSTROOM_H
#define GPU_LEASE_HOSTROOM_H

#include <stdbool.h>
#include <stdint.h>

bool host_has_room(uint64_t size); /* in the cgroups of this process */

#endif
