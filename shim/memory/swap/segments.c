/* segments.c: the physical memory of segments, and which devices may reach it.
 *
 * To memory of cuMemAlloc the driver gives other devices access by context
 * (cuCtxEnablePeerAccess), but to mappings by mapping (cuMemSetAccess). So whenever a segment is
 * mapped we give access to all devices that have been given access in any context or pool. Access
 * is not taken away again when the program disables it: that would take 0.15 s for each other
 * device of a full H200, and no correct program depends on it.
 */
#include "memory/swap/segments.h"

#include "base/debug.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "work/captures.h"

CUmemAllocationProp segment_properties(CUdevice device, bool exportable)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};

	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = device;
	if (exportable)
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	return prop;
}

CUresult segments_set_access(CUdeviceptr base, size_t size, uint64_t writers, uint64_t readers)
{
	CUmemAccessDesc access[MAX_DEVICES] = {0};
	size_t n = 0;

	for (int d = 0; d < MAX_DEVICES; d++) {
		if (!((writers | readers) >> d & 1))
			continue;
		access[n].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
		access[n].location.id = d;
		access[n++].flags = writers >> d & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
		                                     : CU_MEM_ACCESS_FLAGS_PROT_READ;
	}
	return n ? REAL(cuMemSetAccess)(base, size, access, n) : CUDA_SUCCESS;
}

static uint64_t access_of(const struct block *block)
{
	return block->prop ? block->access
	                   : block->lane->peers | UINT64_C(1) << block->lane->device;
}

bool segment_joins_older(const struct segment *segment)
{
	const struct segment *older = segment->older;

	return older && older->base + older->size == segment->base &&
	       (older->block == segment->block || (older->block->prop && segment->block->prop)) &&
	       access_of(older->block) == access_of(segment->block);
}

static CUresult map_segment(struct segment *segment)
{
	const struct block *block = segment->block;
	const struct lane *lane = block->lane;
	CUmemAllocationProp prop =
	    block->prop ? *block->prop : segment_properties(lane->device, lane->exportable);
	CUresult result;

	result = DRIVER(cuMemCreate)(&segment->handle, segment->size, &prop, 0);
	if (result)
		return result;
	result = DRIVER(cuMemMap)(segment->base, segment->size, 0, segment->handle, 0);
	if (result)
		DRIVER(cuMemRelease)(segment->handle);
	return result;
}

/* Gives access to all n segments in one call, because a call takes half a millisecond while copies
 * run, however much memory it is. If that fails each gets a call: the program may have reserved the
 * addresses of its own mappings by several calls. */
static CUresult allow(struct segment *newest, unsigned int n, CUdeviceptr base, size_t size)
{
	CUresult result = segments_set_access(base, size, access_of(newest->block), 0);

	for (bool apart = result && newest->block->prop; apart && n; n--, newest = newest->older) {
		result =
		    segments_set_access(newest->base, newest->size, access_of(newest->block), 0);
		apart = !result;
	}
	return result;
}

unsigned int segments_map(struct segment *newest, unsigned int n, CUresult *result)
{
	struct lane *lane = newest->block->lane;
	struct segment *s = newest;
	CUdeviceptr base = 0;
	CUresult allowed;
	unsigned int mapped = 0;
	size_t size = 0;

	for (*result = CUDA_SUCCESS; mapped < n; s = s->older) {
		*result = map_segment(s);
		if (*result)
			break;
		base = s->base;
		size += s->size;
		mapped++;
	}
	if (!mapped)
		return 0;
	allowed = allow(newest, mapped, base, size);
	if (!allowed) {
		lane->resident += size;
		return mapped;
	}
	*result = allowed;
	for (s = newest; mapped; mapped--, s = s->older)
		segment_unmap(s);
	return 0;
}

void segment_unmap(struct segment *segment)
{
	DRIVER(cuMemUnmap)(segment->base, segment->size);
	DRIVER(cuMemRelease)(segment->handle);
}

/* -- peers ------------------------------------------------------------------------------ */

/* The caller holds swap_lock. Gives access to all mapped segments. An error for a segment that is
 * being moved is ignored: it may be unmapped already. */
static CUresult allow_segments(const struct lane *lane, CUdevice from)
{
	CUresult result = CUDA_SUCCESS, one;

	for (struct segment *s = lane->oldest; s; s = s->newer) {
		if (s->block->prop || (s->state != SEGMENT_RESIDENT && !s->moving))
			continue; /* the program itself gives access to its own mappings */
		one = segments_set_access(s->base, s->size, UINT64_C(1) << from, 0);
		if (one && !s->moving)
			result = one;
	}
	return result;
}

bool swap_peer(CUdevice memory_of, CUdevice from)
{
	CUresult result = CUDA_SUCCESS;
	struct lane *lane;
	bool news;

	if (!device_is_number(memory_of) || !device_is_number(from))
		return false;
	lane = lane_of(memory_of);
	lock_take(&swap_lock);
	news = memory_of != from && !(lane->peers >> from & 1);
	if (news) {
		lane->peers |= UINT64_C(1) << from;
		result = allow_segments(lane, from);
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
	for_each_lane(lane)
		if (lane->asked && lane->usable && lane->device != from &&
		    !REAL(cuDeviceCanAccessPeer)(&can, from, lane->device) && can)
			news |= swap_peer(lane->device, from);
	captures_mode(mode);
	if (news)
		debug("device %d may reach the memory of its peers from now on", from);
	return news;
}
