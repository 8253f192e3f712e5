/* devices.c: the devices that this process has seen, by their UUIDs. */
#include "shim.h"

#include <string.h>

static uint8_t uuids[MAX_DEVICES][GL_UUID_BYTES];
static atomic_bool uuid_known[MAX_DEVICES];
static struct lock lock = LOCK(LOCK_DEVICES);

static bool ask_uuid(CUdevice device, CUuuid *out)
{
	if (REAL(cuDeviceGetUuid_v2))
		return !REAL(cuDeviceGetUuid_v2)(out, device);
	return REAL(cuDeviceGetUuid) && !REAL(cuDeviceGetUuid)(out, device);
}

/* The driver is asked without the lock: to find its functions may take the loader's. */
const uint8_t *device_uuid(CUdevice device)
{
	CUuuid uuid;

	if (device < 0 || device >= MAX_DEVICES)
		return NULL;
	if (atomic_load(&uuid_known[device]))
		return uuids[device];
	if (!ask_uuid(device, &uuid))
		return NULL;
	lock_take(&lock);
	memcpy(uuids[device], uuid.bytes, GL_UUID_BYTES);
	atomic_store(&uuid_known[device], true);
	lock_give(&lock);
	return uuids[device];
}

bool device_known(CUdevice device)
{
	return atomic_load(&uuid_known[device]);
}

CUdevice device_of(const uint8_t uuid[16])
{
	for (int d = 0; d < MAX_DEVICES; d++)
		if (uuid_known[d] && !memcmp(uuids[d], uuid, GL_UUID_BYTES))
			return d;
	return -1;
}

void devices_after_fork(void)
{
	lock_after_fork(&lock);
}
