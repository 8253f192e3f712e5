/* usable.h: whether memory of a device can be swapped, and in which pieces. */
#ifndef GPU_LEASE_SWAP_USABLE_H
#define GPU_LEASE_SWAP_USABLE_H

#include <cuda.h>
#include <stdbool.h>

bool swap_serves(CUdevice device); /* the driver is asked once; the answer is in swap_devices[] */

#endif
