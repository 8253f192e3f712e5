/* swap.c: allocations that we move between the device and the host (memory:swap).
 *
 * They are mappings at reserved addresses, cut into segments. swap_held says that
 * every segment is on its device and that new ones get memory at once: from the
 * end of a grant's restore until the gate is shut and all work has finished.
 *
 * Why nobody reaches a segment that is away:
 * - Whatever makes a device read or write memory (launches, graph launches,
 *   copies, memsets, stream operations: GATED in hooks.def) waits at the gate.
 *   It opens after everything is back (swap_hold()), and nothing leaves before
 *   it is shut, empty and drained (swap_let_go()). The drain covers every
 *   stream of every context of the process, graph launches and host functions.
 * - The one call that a stuck job may make through a shut gate (GL_STEP) is let
 *   in by a process that holds, or that has restored before.
 * - What only looks at addresses (LOOKS in hooks.def: nodes of graphs, textures;
 *   calls into a capture) executes nothing, but the driver refuses an address
 *   without memory: such calls pass while all is there, and else wait until it is
 *   back. They are counted as inside: segments leave later.
 * - A device of the same process that reaches another's memory (peer access,
 *   copies between devices) belongs to the same gang: all or none are leased.
 *   Who may reach it is told of each segment when it is mapped (peers.c).
 * - Other processes cannot reach it: only shared_export.c exports its handles, after it
 *   has fixed the block, and we refuse cuMemGetHandleForAddressRange and
 *   cuMemRetainAllocationHandle. There is no GPUDirect RDMA to it: its physical memory is not made
 *   gpuDirectRDMACapable, so the driver refuses to pin it for other devices.
 * - What the program maps itself (vmm.c) may be exportable, and open to RDMA. It is a
 *   block only while nobody else knows it: what is exported, bound to multicast, given
 *   to sparse arrays or asked for by address range (KEEPS in hooks.def) is taken back
 *   first and stays. Where a kernel module would let devices reach it by its address
 *   alone, memory that is open to that never becomes a block.
 * - cuMemHostGetDevicePointer and its like give addresses of host memory.
 *   Questions about a pointer are answered from here (pointers.c).
 * What a driver does by itself behind a submitted call ends before the drain.
 */
#include "memory/swap/swap.h"

#include "base/debug.h"
#include "base/fork.h"
#include "base/locks.h"
#include "base/wire.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/kind.h"
#include "tenant/tenant.h"
#include "work/captures.h"

#include <stdlib.h>

/* What was freed while a capture went on, during which nobody may wait. */
struct put_off {
	struct put_off *next;
	CUdeviceptr pointer;
	size_t size;
	CUcontext context;
};
const struct store *swap_store = &pinned_store;
static _Atomic(struct put_off *) put_offs; /* changed with the lock held */

/* -- whether ------------------------------------------------------------------- */

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
static bool serves(CUdevice device)
{
	const uint8_t *uuid = device_uuid(device);
	uint64_t limit = uuid ? tenant_limit(uuid) : NO_LIMIT;

	if (!limit || limit == NO_LIMIT || !tenant_swaps() || tenant_oversubscribes())
		return false;
	if (!swap_devices[device].asked)
		set_up(device, limit);
	return swap_devices[device].usable;
}

/* -- allocating and freeing ---------------------------------------------------- */

static CUresult allocate_small(CUdeviceptr *out, size_t size, CUdevice device)
{
	struct block *block;
	CUresult result;
	bool taken;

	for (;;) {
		lock_take(&swap_lock);
		taken = slab_take(device, size, out);
		lock_give(&swap_lock);
		if (taken)
			return CUDA_SUCCESS;
		result = block_make(slab_next_size(device), device, &block);
		if (result == CUDA_ERROR_OUT_OF_MEMORY) /* the limit may be near */
			result = block_make(swap_devices[device].unit, device, &block);
		TRY(result);
		result = slab_add(block);
		if (result) {
			block_drop(block);
			return result;
		}
	}
}

static CUresult allocate(CUdeviceptr *out, size_t size, CUdevice device)
{
	size_t unit = swap_devices[device].unit;
	struct block *block;

	if (size > SIZE_MAX / 2)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (size < SWAP_SMALL)
		return allocate_small(out, size, device);
	TRY(block_make((size + unit - 1) / unit * unit, device, &block));
	*out = block->base;
	return CUDA_SUCCESS;
}

/* Nothing uses it any more. */
static void give(CUdeviceptr pointer, size_t size)
{
	struct block *block;
	bool moves = false;

	lock_take(&swap_lock);
	block = block_find(pointer);
	if (block && block->slab && !slab_give(block->slab, pointer, size))
		block = NULL;
	if (block && block->slab)
		slab_forget(block);
	if (block) {
		block_forget(block);
		moves = block->n_moving;
	}
	lock_give(&swap_lock);
	if (block && !moves)
		block_end(block);
}

/* Wait for what the context was given. False: a capture forbids it. */
static bool quiesce(CUcontext context, CUresult *result)
{
	CUevent event = NULL;
	CUcontext old;

	if (!captures_hold_off())
		return false;
	*result = REAL(cuCtxPushCurrent_v2)(context);
	if (*result) {
		captures_let();
		return true;
	}
	*result = CUDA_ERROR_NOT_FOUND;
	if (REAL(cuCtxRecordEvent) &&
	    !REAL(cuEventCreate)(&event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING))
		*result = REAL(cuCtxRecordEvent)(context, event);
	if (*result)
		*result = REAL(cuCtxSynchronize)();
	captures_let();
	if (event) {
		CUstreamCaptureMode mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);

		if (!*result)
			*result = REAL(cuEventSynchronize)(event);
		REAL(cuEventDestroy_v2)(event);
		captures_mode(mode);
	}
	REAL(cuCtxPopCurrent_v2)(&old);
	return true;
}

static bool holds(void)
{
	bool now;

	lock_take(&swap_lock);
	now = swap_held;
	lock_give(&swap_lock);
	return now;
}

static CUresult put_off(CUdeviceptr pointer, size_t size, CUcontext context)
{
	struct put_off *p = malloc(sizeof(*p));

	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	lock_take(&swap_lock);
	*p = (struct put_off){put_offs, pointer, size, context};
	put_offs = p;
	lock_give(&swap_lock);
	return CUDA_SUCCESS;
}

/* What was put off and can be freed now. context: only that one's, which is gone; NULL: all. */
static void catch_up(CUcontext context, bool wait)
{
	struct put_off *list, *p;
	CUresult ignored;

	lock_take(&swap_lock);
	list = put_offs;
	put_offs = NULL;
	lock_give(&swap_lock);
	while ((p = list)) {
		list = p->next;
		if (context ? p->context == context
		            : !holds() || (wait && quiesce(p->context, &ignored)))
			give(p->pointer, p->size);
		else
			put_off(p->pointer, p->size, p->context);
		free(p);
	}
}

void swap_catch_up(bool wait)
{
	if (swap_used() && put_offs)
		catch_up(NULL, wait);
}

bool swap_wait_for(CUcontext context, CUresult *result)
{
	return !holds() || quiesce(context, result);
}

/* wait: for the work that may use it, as the driver does. While the process does
 * not hold there is none. */
static CUresult free_swapped(CUdeviceptr pointer, const struct memory_range *range, bool wait)
{
	CUresult result = CUDA_SUCCESS;
	CUstreamCaptureMode mode;

	if (wait && holds() && !quiesce(range->context, &result))
		return put_off(pointer, range->size, range->context);
	mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	give(pointer, range->size);
	swap_catch_up(wait);
	captures_mode(mode);
	return result;
}

static void context_gone(CUcontext context)
{
	if (swap_used())
		catch_up(context, false);
}

/* -- holding --------------------------------------------------------------------- */

bool swap_hold(bool force)
{
	unsigned long missing = 0, moving = 0;
	bool all;

	lock_take(&swap_lock);
	for (int d = 0; d < MAX_DEVICES; d++) {
		missing += swap_devices[d].missing;
		moving += swap_devices[d].moving;
	}
	all = !moving && (!missing || force);
	if (all) {
		swap_held = true;
		atomic_store(&gate_memory, swap_used() ? GATE_MEMORY_HERE : GATE_MEMORY_STAYS);
	}
	lock_give(&swap_lock);
	return all;
}

bool swap_let_go(void)
{
	lock_take(&swap_lock);
	swap_held = false;
	if (swap_used())
		atomic_store(&gate_memory, GATE_MEMORY_AWAY);
	lock_give(&swap_lock);
	if (swap_used())
		gate_barrier();
	return swap_used();
}

/* -- what is said of it ------------------------------------------------------------ */

uint64_t swap_bytes(CUdevice device)
{
	uint64_t bytes;

	lock_take(&swap_lock);
	bytes = swap_devices[device].bytes;
	lock_give(&swap_lock);
	return bytes;
}

static void report(CUdevice device, struct gl_device *out)
{
	const struct swap_device *d = &swap_devices[device];

	lock_take(&swap_lock);
	out->bytes += d->bytes - d->fixed;
	out->fixed += d->fixed;
	out->resident += d->resident - d->fixed;
	lock_give(&swap_lock);
}

static bool find(CUdeviceptr pointer, struct memory_place *out)
{
	struct memory_range range;
	struct block *block;

	if (!swap_used())
		return false;
	lock_take(&swap_lock);
	block = block_find(pointer);
	if (block) {
		out->base = block->slab ? slab_start(block->slab, pointer) : block->base;
		out->device = block->device;
		out->id = block->number << 24 | (out->base - block->base) >> 9;
	}
	lock_give(&swap_lock);
	if (!block || !out->base || !memory_find(out->base, &range))
		return false;
	out->size = range.size;
	out->context = range.context;
	return pointer - out->base < range.size;
}

bool swap_of_program(CUdeviceptr pointer)
{
	struct block *block;
	bool is = false;

	if (!swap_used())
		return false;
	lock_take(&swap_lock);
	block = block_find(pointer);
	is = block && block->prop;
	lock_give(&swap_lock);
	return is;
}

const struct memory_kind swapped_memory = {
    .name = "swapped",
    .limits_itself = true,
    .outlives_contexts = true,
    .serves = serves,
    .allocate = allocate,
    .free = free_swapped,
    .find = find,
    .report = report,
    .reclaim = swap_catch_up,
    .context_ends = swap_context_ends,
    .context_gone = context_gone,
    .mover = &swap_mover,
};

static void in_child(void)
{
	put_offs = NULL;
}
FORK_WATCH(in_child);
