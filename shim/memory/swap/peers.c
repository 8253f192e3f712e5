/* peers.c: devices of the process that may reach each other's swapped memory.
 *
 * To memory of cuMemAlloc the driver gives other devices access by context
 * (cuCtxEnablePeerAccess), but to mappings by mapping (cuMemSetAccess). So whenever a segment is
 * mapped we give access to all devices that have been given access in any context or pool. Access
 * is not taken away again when the program disables it: that would take 0.15 s for each other
 * device of a full H200, and no correct program depends on it.
 */
#include "memory/swap/peers.h"

#include "base/debug.h"
#include "base/locks.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "memory/swap/devices.h"
#include "memory/swap/segments.h"
#include "work/captures.h"

/* The caller holds swap_lock. Gives access to all mapped segments. An error for a segment that is
 * being moved is ignored: it may be unmapped already. */
static CUresult allow_segments(const struct swap_device *d, CUdevice from)
{
	CUresult result = CUDA_SUCCESS, one;

	for (struct segment *s = d->oldest; s; s = s->newer) {
		if (s->block->prop || (s->state != SEGMENT_RESIDENT && !s->moving))
			continue; /* the program itself gives access to its own mappings */
		one = segments_set_access(s->base, s->size, UINT64_C(1) << from);
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
		result = allow_segments(d, from);
	}
	lock_give(&swap_lock);
	if (result)
		complain(
		    "device %d cannot access all memory of device %d (CUDA error %d), so copies "
		    "and kernels that use it fail; start the job again, and if that does not "
		    "help, ask the administrator to look at these GPUs (dmesg)",
		    from, memory_of, (int)result);
	return news;
}

/* The driver copies from and to memory of cuMemAlloc on any device, even without peer access, but
 * from and to a mapping only if the device of the call has access. So that device gets access the
 * first time that the lack of it may be why a call has failed. */
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
		debug("device %d may reach the memory of its peers from now on", from);
	return news;
}
