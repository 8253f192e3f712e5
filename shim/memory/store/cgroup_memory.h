/* cgroup_memory.h: how much more host memory the process's cgroups allow. */
#ifndef GPU_LEASE_CGROUP_MEMORY_H
#define GPU_LEASE_CGROUP_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* May the process use so many more bytes of host memory for copies? Reads files below
 * /sys/fs/cgroup. Any thread may call it. */
bool cgroup_has_memory(uint64_t size);

#endif
