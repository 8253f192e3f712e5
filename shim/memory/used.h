/* used.h: how many bytes of each device this process counts against its job's limit. Any thread may
 * call these functions, also with a lock held whose rank is lower.
 */
#ifndef GPU_LEASE_USED_H
#define GPU_LEASE_USED_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* Bytes that are counted on the device. */
uint64_t memory_used(CUdevice device);
/* Counts so many bytes more, or with a negative size less. */
void used_add(CUdevice device, int64_t size);
/* Counts `size` bytes more if there are at most `most` then. Returns whether they are counted. */
bool used_take(CUdevice device, uint64_t size, uint64_t most);

#endif
