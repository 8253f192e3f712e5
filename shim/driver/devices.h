/* devices.h: the devices that the process has used, and their UUIDs.
 *
 * Any thread may call these functions.
 */
#ifndef GPU_LEASE_DEVICES_H
#define GPU_LEASE_DEVICES_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define MAX_DEVICES 64 /* device numbers are below this */

static inline bool device_is_number(CUdevice device)
{
	return device >= 0 && device < MAX_DEVICES;
}

/* The 16 bytes of the device's UUID; they stay what they are, also where the device gets another
 * one (devices_moved()). NULL if the driver does not tell it. The first
 * call asks the driver, so the caller holds no lock below LOCK_DEVICES. */
const uint8_t *device_uuid(CUdevice device);
/* The device that has this UUID, or -1 if device_uuid() has not found it so far. */
CUdevice device_of(const uint8_t uuid[16]);
/* The devices with these UUIDs have changed places. */
void devices_moved(const uint8_t from[16], const uint8_t to[16]);
/* Has device_uuid() found this device's UUID? */
bool device_known(CUdevice device);

#endif
