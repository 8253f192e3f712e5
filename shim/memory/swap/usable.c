/* usable.c: whether memory of a device can be swapped, and in which pieces. */
#include "memory/swap/usable.h"

#include "base/debug.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "memory/swap/devices.h"
#include "memory/swap/segments.h"
#include "memory/swap/store.h"
#include "tenant/tenant.h"

#define SWAP_PIECE (UINT64_C(256) << 20) /* no segment is larger */
#define SWAP_PARTS 32                    /* of what a job may have, at least */

/* Whether its memory can be passed to other processes as descriptors. */
static bool driver_exports(CUdevice device)
{
	CUdevice_attribute attribute =
	    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
	int supported = 0;

	return DRIVER(cuMemExportToShareableHandle) && REAL(cuMemImportFromShareableHandle) &&
	       !REAL(cuDeviceGetAttribute)(&supported, attribute, device) && supported;
}

static bool driver_can(CUdevice device, size_t *unit)
{
	CUdevice_attribute attribute = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
	CUmemAllocationProp prop = segment_properties(device);
	int supported = 0;

	return DRIVER(cuMemCreate) && DRIVER(cuMemRelease) && DRIVER(cuMemMap) &&
	       DRIVER(cuMemUnmap) && REAL(cuMemAddressReserve) && REAL(cuMemAddressFree) &&
	       REAL(cuMemSetAccess) && REAL(cuMemGetAllocationGranularity) &&
	       !REAL(cuDeviceGetAttribute)(&supported, attribute, device) && supported &&
	       !REAL(cuMemGetAllocationGranularity)(unit, &prop,
	                                            CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) &&
	       *unit;
}

/* A segment is at most a small part of what the job may have. */
static void set_up(CUdevice device, uint64_t limit)
{
	struct swap_device *d = &swap_devices[device];
	size_t unit = 0, piece = 0;
	bool exportable = driver_exports(device), usable = driver_can(device, &unit);

	if (usable) {
		piece = SWAP_PIECE < limit / SWAP_PARTS ? SWAP_PIECE : limit / SWAP_PARTS;
		piece = piece < unit ? unit : piece / unit * unit;
		swap_store->shape(piece);
		debug("device %d: memory is swapped in pieces of %zu KiB", device, piece >> 10);
	} else {
		complain("the driver cannot swap memory of device %d: it is managed", device);
	}
	lock_take(&swap_lock);
	if (!d->asked) { /* its peers may be known already */
		d->usable = usable;
		d->exportable = exportable;
		d->unit = unit;
		d->piece = piece;
		d->asked = true;
	}
	lock_give(&swap_lock);
}

/* With oversubscription a job may have more than the device, which can never be
 * there at once; so it stays with the driver, page by page. */
bool swap_serves(CUdevice device)
{
	const uint8_t *uuid = device_uuid(device);
	uint64_t limit = uuid ? tenant_limit(uuid) : NO_LIMIT;

	if (!limit || limit == NO_LIMIT || !tenant_swaps() || tenant_oversubscribes())
		return false;
	if (!swap_devices[device].asked)
		set_up(device, limit);
	return swap_devices[device].usable;
}
