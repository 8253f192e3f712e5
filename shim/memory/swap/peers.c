/* peers.c: devices of the process that reach each other's swapped memory.
 *
 * The driver lets a device reach what cuMemAlloc made on another one by context
 * (cuCtxEnablePeerAccess), mappings by mapping (cuMemSetAccess). So we tell it of
 * each segment whenever it is mapped: of all devices that have been given access,
 * whichever context or pool of theirs it was. Access stays when the program
 * takes it back: to tell the driver of a full H200 takes 0.15 s for each other
 * device, and nothing that a right program does depends on it.
 */
#include "memory/swap/peers.h"

#include "base/debug.h"
#include "base/locks.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "memory/swap/devices.h"
#include "memory/swap/segments.h"
#include "work/captures.h"

/* A segment on its way out may have no mapping any more; all others have one. */
static CUresult tell_driver(const struct swap_device *d, CUdevice from)
{
	CUresult result = CUDA_SUCCESS, one;

	for (struct segment *s = d->oldest; s; s = s->newer) {
		if (s->block->prop || (s->state != SEGMENT_RESIDENT && !s->moving))
			continue; /* the program itself says who reaches its own mappings */
		one = segments_allow(s->base, s->size, UINT64_C(1) << from);
		if (one && !s->moving)
			result = one;
	}
	return result;
}

bool swap_peer(CUdevice memory_of, CUdevice from)
{
	struct swap_device *d = &swap_devices[memory_of];
	CUresult result = CUDA_SUCCESS;
	bool news;

	if (memory_of < 0 || memory_of >= MAX_DEVICES || from < 0 || from >= MAX_DEVICES)
		return false;
	lock_take(&swap_lock);
	news = memory_of != from && !(d->peers >> from & 1);
	if (news) {
		d->peers |= UINT64_C(1) << from;
		result = tell_driver(d, from);
	}
	lock_give(&swap_lock);
	if (result)
		complain("device %d cannot access all memory of device %d (CUDA error %d)", from,
		         memory_of, (int)result);
	return news;
}

/* The driver has refused a call. Copies find what cuMemAlloc made on any device, with
 * peer access or without, but mappings only where the device of the call has access:
 * so it gets that, the first time that it may be why. True: try once more. */
bool swap_allow_peers(void)
{
	CUstreamCaptureMode mode;
	bool news = false;
	CUdevice from;
	int can;

	if (!swap_used() || !REAL(cuDeviceCanAccessPeer) || REAL(cuCtxGetDevice)(&from))
		return false;
	mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	for (CUdevice d = 0; d < MAX_DEVICES; d++)
		if (d != from && swap_devices[d].asked && swap_devices[d].usable &&
		    !REAL(cuDeviceCanAccessPeer)(&can, from, d) && can)
			news |= swap_peer(d, from);
	captures_mode(mode);
	if (news)
		debug("device %d reaches its peers' memory from now on", from);
	return news;
}
