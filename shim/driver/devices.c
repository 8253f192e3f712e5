/* devices.c: the devices that the process has used, and their UUIDs. */
#include "driver/devices.h"

#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"

#include <string.h>

#define UUID sizeof(CUuuid)

/* Each UUID that a device has had is here once, and stays. */
static uint8_t uuids[MAX_DEVICES][UUID];
static unsigned int n_uuids;
static _Atomic(const uint8_t *) uuid_of[MAX_DEVICES]; /* NULL: not known yet */
static struct lock lock = LOCK(LOCK_DEVICES);

static bool ask_uuid(CUdevice device, CUuuid *out)
{
	if (REAL(cuDeviceGetUuid_v2))
		return !REAL(cuDeviceGetUuid_v2)(out, device);
	return REAL(cuDeviceGetUuid) && !REAL(cuDeviceGetUuid)(out, device);
}

bool device_known(CUdevice device)
{
	return device_is_number(device) && atomic_load(&uuid_of[device]);
}

/* The copy that stays; NULL: there are too many. The caller holds the lock. */
static const uint8_t *kept(const uint8_t uuid[UUID])
{
	for (unsigned int i = 0; i < n_uuids; i++)
		if (!memcmp(uuids[i], uuid, UUID))
			return uuids[i];
	return n_uuids < MAX_DEVICES ? memcpy(uuids[n_uuids++], uuid, UUID) : NULL;
}

/* The driver is asked without our lock held, because looking up its function may take the dynamic
 * loader's lock. */
const uint8_t *device_uuid(CUdevice device)
{
	CUuuid uuid;

	if (!device_is_number(device))
		return NULL;
	if (!device_known(device) && ask_uuid(device, &uuid)) {
		lock_take(&lock);
		if (!atomic_load(&uuid_of[device]))
			atomic_store(&uuid_of[device], kept((const uint8_t *)uuid.bytes));
		lock_give(&lock);
	}
	return atomic_load(&uuid_of[device]);
}

CUdevice device_of(const uint8_t uuid[16])
{
	for (int d = 0; d < MAX_DEVICES; d++)
		if (device_known(d) && !memcmp(atomic_load(&uuid_of[d]), uuid, UUID))
			return d;
	return -1;
}

void devices_moved(const uint8_t from[16], const uint8_t to[16])
{
	CUdevice one = device_of(from), other = device_of(to);

	lock_take(&lock);
	if (one >= 0)
		atomic_store(&uuid_of[one], kept(to));
	if (other >= 0)
		atomic_store(&uuid_of[other], kept(from));
	lock_give(&lock);
}

/* The UUIDs stay true in the child. */
static void in_child(void)
{
	lock_after_fork(&lock);
}
FORK_WATCH(in_child);
