/* usable.c: whether memory of a device can be swapped, and in segments of which size. */
#include "memory/swap/usable.h"

#include "base/debug.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "memory/swap/devices.h"
#include "memory/swap/segments.h"
#include "memory/swap/store.h"
#include "tenant/tenant.h"

/* A segment has at most so many bytes, and at most this fraction of what the job may have. */
#define SWAP_PIECE (UINT64_C(256) << 20)
#define SWAP_PARTS 32

/* Can memory of the device be passed to other processes as descriptors? */
static bool driver_exports(CUdevice device)
{
	CUdevice_attribute attribute =
	    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
	int supported = 0;

	return DRIVER(cuMemExportToShareableHandle) && REAL(cuMemImportFromShareableHandle) &&
	       !REAL(cuDeviceGetAttribute)(&supported, attribute, device) && supported;
}

/* Has the driver all functions that swapping needs? *unit: the granularity of physical memory. */
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

/* limit: bytes of the device that the job may have. */
static void set_up(CUdevice device, uint64_t limit)
{
	struct swap_device *d = &swap_devices[device];
	size_t unit = 0, piece = 0;
	bool exportable = driver_exports(device), usable = driver_can(device, &unit);

	if (usable) {
		piece = SWAP_PIECE < limit / SWAP_PARTS ? SWAP_PIECE : limit / SWAP_PARTS;
		piece = piece < unit ? unit : piece / unit * unit;
		swap_store->set_piece(piece);
		debug("device %d: memory is swapped in pieces of %zu KiB", device, piece >> 10);
	} else {
		complain("memory:swap has no effect on device %d: its driver lacks functions that "
		         "swapping needs, so the memory is managed; to swap, ask the administrator "
		         "for a newer driver",
		         device);
	}
	lock_take(&swap_lock);
	if (!d->asked) {
		d->usable = usable;
		d->exportable = exportable;
		d->unit = unit;
		d->piece = piece;
		d->asked = true;
	}
	lock_give(&swap_lock);
}

/* With oversubscription the job's memory may be larger than the device, so it could never all be
 * resident. The driver has to move it page by page. */
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
