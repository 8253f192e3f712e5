/* limit.h: the bytes of each device that this process counts against its job's limit.
 *
 * An allocation is counted before the driver is asked, and until it has been freed. Any thread may
 * call these functions without a lock.
 */
#ifndef GPU_LEASE_LIMIT_H
#define GPU_LEASE_LIMIT_H

#include <cuda.h>
#include <stdint.h>

/* Counts `size` bytes, if the job may have so many more on the device. May wait for the daemon.
 * CUDA_ERROR_OUT_OF_MEMORY: it may not; other errors are those of tenant_wait(). */
CUresult limit_take(CUdevice device, uint64_t size);
/* Counts bytes without checking the limit. */
void limit_add(CUdevice device, uint64_t size);
/* Counts so many bytes less. */
void limit_give(CUdevice device, uint64_t size);

#endif
