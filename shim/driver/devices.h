/* devices.h: the devices that the process has used, and their UUIDs. */
#ifndef GPU_LEASE_DEVICES_H
#define GPU_LEASE_DEVICES_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define MAX_DEVICES 64

const uint8_t *device_uuid(CUdevice device); /* NULL: the driver does not say */
CUdevice device_of(const uint8_t uuid[16]);  /* -1: not seen yet */
bool device_known(CUdevice device);          /* somebody has asked for its UUID */

#endif
