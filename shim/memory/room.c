/* room.c: room on a device for what the driver allocates itself, which others have to make. */
#include "memory/room.h"

#include "base/clock.h"
#include "base/debug.h"
#include "driver/devices.h"
#include "gate/gate.h"
#include "memory/ranges.h"

static bool ask_for_room(struct wanted_room *wanted, CUdevice device, uint64_t size)
{
	if (!size || !device_uuid(device))
		return false;
	wanted->bytes = (int64_t)size;
	memory_count(device, MEMORY_fixed, wanted->bytes);
	debug("device %d has no room for %llu KiB; others shall make some", device,
	      (unsigned long long)size >> 10);
	return true;
}

/* The lease says that others have been told, not yet that they are gone. */
bool wait_for_room(struct wanted_room *wanted, CUresult result, CUdevice device, uint64_t size)
{
	bool more = result == CUDA_ERROR_OUT_OF_MEMORY &&
	            (wanted->bytes || ask_for_room(wanted, device, size)) && !gate_wait(false);

	if (more && !wanted->since)
		wanted->since = now_ns();
	if (more && now_ns() - wanted->since < ROOM_NS) {
		pause_us(ROOM_PAUSE_US);
		return true;
	}
	if (wanted->bytes)
		memory_count(device, MEMORY_fixed, -wanted->bytes);
	return false;
}
