/* devices.c: the devices that the process has used, and their UUIDs. */
#include "driver/devices.h"

#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"

#include <string.h>

static uint8_t uuids[MAX_DEVICES][sizeof(CUuuid)];
static atomic_bool known[MAX_DEVICES];
static struct lock lock = LOCK(LOCK_DEVICES);

static bool ask_uuid(CUdevice device, CUuuid *out)
{
	if (REAL(cuDeviceGetUuid_v2))
		return !REAL(cuDeviceGetUuid_v2)(out, device);
	return REAL(cuDeviceGetUuid) && !REAL(cuDeviceGetUuid)(out, device);
}

bool device_known(CUdevice device)
{
	return device_is_number(device) && atomic_load(&known[device]);
}

/* The driver is asked without our lock held, because looking up its function may take the dynamic
 * loader's lock. */
const uint8_t *device_uuid(CUdevice device)
{
	CUuuid uuid;

	if (!device_is_number(device))
		return NULL;
	if (device_known(device))
		return uuids[device];
	if (!ask_uuid(device, &uuid))
		return NULL;
	lock_take(&lock);
	memcpy(uuids[device], uuid.bytes, sizeof(uuid.bytes));
	atomic_store(&known[device], true);
	lock_give(&lock);
	return uuids[device];
}

CUdevice device_of(const uint8_t uuid[16])
{
	for (int d = 0; d < MAX_DEVICES; d++)
		if (device_known(d) && !memcmp(uuids[d], uuid, sizeof(uuids[d])))
			return d;
	return -1;
}

/* The UUIDs stay true in the child. */
static void in_child(void)
{
	lock_after_fork(&lock);
}
FORK_WATCH(in_child);
