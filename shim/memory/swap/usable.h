/* usable.h: whether memory of a device can be swapped, and in segments of which size. */
#ifndef GPU_LEASE_SWAP_USABLE_H
#define GPU_LEASE_SWAP_USABLE_H

#include <cuda.h>
#include <stdbool.h>

/* Are allocations on the device swapped memory? The first call asks the driver, and fills in
 * swap_devices[]. Any thread may call it, without swap_lock. */
bool swap_serves(CUdevice device);

#endif
