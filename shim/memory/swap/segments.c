/* segments.c: the segments of blocks, and their physical memory. */
#include "memory/swap/segments.h"

#include "driver/devices.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/swap/devices.h"

CUmemAllocationProp segment_properties(CUdevice device)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};

	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = device;
	if (swap_devices[device].exportable)
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	return prop;
}

CUresult segments_set_access(CUdeviceptr base, size_t size, uint64_t devices)
{
	CUmemAccessDesc access[MAX_DEVICES] = {0};
	size_t n = 0;

	for (int d = 0; d < MAX_DEVICES; d++) {
		if (!(devices >> d & 1))
			continue;
		access[n].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
		access[n].location.id = d;
		access[n++].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	}
	return REAL(cuMemSetAccess)(base, size, access, n);
}

static uint64_t access_of(const struct block *block)
{
	return block->prop ? block->access
	                   : swap_devices[block->device].peers | UINT64_C(1) << block->device;
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
	CUmemAllocationProp prop = block->prop ? *block->prop : segment_properties(block->device);
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
	CUresult result = segments_set_access(base, size, access_of(newest->block));

	for (bool apart = result && newest->block->prop; apart && n; n--, newest = newest->older) {
		result = segments_set_access(newest->base, newest->size, access_of(newest->block));
		apart = !result;
	}
	return result;
}

unsigned int segments_map(struct segment *newest, unsigned int n, CUresult *result)
{
	struct swap_device *d = &swap_devices[newest->block->device];
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
		d->resident += size;
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

void segment_set_resident(struct segment *segment)
{
	segment->state = SEGMENT_RESIDENT;
	segment->unchanged_at = gate_submitted();
	if (!segment->block->doomed)
		swap_devices[segment->block->device].missing--;
}

void segment_set_gone(struct segment *segment, enum segment_state state)
{
	struct swap_device *d = &swap_devices[segment->block->device];

	segment->state = state;
	d->resident -= segment->size;
	if (!segment->block->doomed)
		d->missing++;
}

void segment_set_fixed(struct segment *segment, bool fixed)
{
	struct swap_device *d = &swap_devices[segment->block->device];

	if (segment->fixed != fixed)
		d->fixed += fixed ? segment->size : -segment->size;
	segment->fixed = fixed;
	segment->unhosted = segment->unhosted && fixed;
}

void segment_begin_move(struct segment *segment)
{
	segment->moving = true;
	swap_devices[segment->block->device].moving++;
	segment->block->n_moving++;
}

struct block *segment_end_move(struct segment *segment)
{
	struct block *block = segment->block;

	segment->moving = false;
	swap_devices[block->device].moving--;
	return --block->n_moving == 0 && block->doomed ? block : NULL;
}

void segment_link(struct segment *segment)
{
	struct swap_device *d = &swap_devices[segment->block->device];

	segment->older = d->newest;
	if (d->newest)
		d->newest->newer = segment;
	else
		d->oldest = segment;
	d->newest = segment;
	d->missing++;
}

void segment_unlink(struct segment *segment)
{
	struct swap_device *d = &swap_devices[segment->block->device];

	*(segment->older ? &segment->older->newer : &d->oldest) = segment->newer;
	*(segment->newer ? &segment->newer->older : &d->newest) = segment->older;
	if (d->evict_cursor == segment)
		d->evict_cursor = segment->newer;
	if (d->restore_cursor == segment)
		d->restore_cursor = segment->older;
	if (segment->state != SEGMENT_RESIDENT)
		d->missing--;
	segment_set_fixed(segment, false);
}
