/* swap.c: the kind of memory that the interposer moves between device and host (memory:swap).
 *
 * Allocations are mappings at reserved addresses, divided into segments. During a residency
 * (lane.h) every segment is on its device.
 *
 * Why no work and no call reaches a segment that is not on its device:
 * - Every call that makes a device read or write memory (launches, graph launches, copies, memsets,
 *   stream operations: GATED in hooks.def) waits at the gate. The gate opens after everything is
 *   restored (residency_begin()), and nothing is evicted before the gate is shut and empty and all
 *   work has finished (residency_end()). The drain covers every stream of every context of the
 *   process, graph launches and host functions.
 * - One call may pass the shut gate of a job that is stuck (GL_STEP). It is let in only during a
 *   residency, or after a restore for it.
 * - Calls that only use addresses (LOOKS in hooks.def: nodes of graphs, textures; calls into a
 *   capture) execute nothing, but the driver refuses an address without memory. Such calls pass
 *   during a residency, and wait for the next one otherwise. While they run they are counted as
 *   inside the gate, so no segment is evicted.
 * - A device of the same process that reaches another device's memory (peer access, copies between
 *   devices) belongs to the same gang: all of its devices are leased, or none. Access is given to
 *   each segment whenever it is mapped (segments.c).
 * - Other processes cannot reach a segment: only shared_export.c exports handles, after it has
 *   fixed the block, and we refuse cuMemGetHandleForAddressRange and cuMemRetainAllocationHandle.
 *   GPUDirect RDMA cannot reach it either: the physical memory is not gpuDirectRDMACapable, so the
 *   driver refuses to pin it for other devices.
 * - Memory that the program maps itself (vmm.c) may be exportable, and open to RDMA. It is a block
 *   only while nothing outside this process refers to it. Before it is exported, bound to
 * multicast, given to a sparse array, or asked for by address range (KEEPS in hooks.def), the block
 * ends, and the memory stays on the device. Memory that a kernel module could let other devices
 * reach by its address alone never becomes a block.
 * - cuMemHostGetDevicePointer and similar functions return addresses of host memory. Questions
 *   about a pointer are answered by hooks/pointers.c.
 * Everything that a driver does by itself for a submitted call ends before the drain does.
 */
#include "base/debug.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "memory/ranges.h"
#include "memory/swap/blocks.h"
#include "memory/swap/carrier.h"
#include "memory/swap/clean_check.h"
#include "memory/swap/deferred_free.h"
#include "memory/swap/lane.h"
#include "memory/swap/mover.h"
#include "memory/swap/segments.h"
#include "memory/swap/slabs.h"
#include "memory/swap/step.h"
#include "tenant/tenant.h"

/* A segment has at most so many bytes, and at most this fraction of what the job may have. */
#define SWAP_PIECE (UINT64_C(256) << 20)
#define SWAP_PARTS 32
#define SWAP_SMALL (UINT64_C(1) << 20) /* bytes: smaller allocations share slabs */

/* -- which devices ------------------------------------------------------------------ */

static bool has(CUdevice device, CUdevice_attribute attribute)
{
	int supported = 0;

	return !REAL(cuDeviceGetAttribute)(&supported, attribute, device) && supported;
}

/* Can memory of the device be passed to other processes as descriptors? */
static bool driver_exports(CUdevice device)
{
	return DRIVER(cuMemExportToShareableHandle) && REAL(cuMemImportFromShareableHandle) &&
	       has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
}

/* Has the driver all functions that swapping needs? *unit: the granularity of physical memory. */
static bool driver_can(CUdevice device, bool exportable, size_t *unit)
{
	CUmemAllocationProp prop = segment_properties(device, exportable);

	return DRIVER(cuMemCreate) && DRIVER(cuMemRelease) && DRIVER(cuMemMap) &&
	       DRIVER(cuMemUnmap) && REAL(cuMemAddressReserve) && REAL(cuMemAddressFree) &&
	       REAL(cuMemSetAccess) && REAL(cuMemGetAllocationGranularity) &&
	       has(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
	       !REAL(cuMemGetAllocationGranularity)(unit, &prop,
	                                            CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) &&
	       *unit;
}

/* limit: bytes of the device that the job may have. */
static void set_up(struct lane *lane, CUdevice device, uint64_t limit)
{
	size_t unit = 0, piece = 0;
	bool exportable = driver_exports(device), usable = driver_can(device, exportable, &unit);

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
	lane_set_up(lane, device, usable, exportable, unit, piece);
}

/* With oversubscription the job's memory may be larger than the device, so it could never all be
 * resident. The driver has to move it page by page. */
static bool serves(CUdevice device)
{
	const uint8_t *uuid = device_uuid(device);
	uint64_t limit = uuid ? tenant_limit(uuid) : NO_LIMIT;
	struct lane *lane;

	if (!limit || limit == NO_LIMIT || !tenant_swaps() || tenant_oversubscribes())
		return false;
	lane = lane_of(device);
	if (!lane->asked)
		set_up(lane, device, limit);
	return lane->usable;
}

/* -- allocating ---------------------------------------------------------------- */

static CUresult allocate_small(CUdeviceptr *out, size_t size, struct lane *lane)
{
	struct block *block;
	CUresult result;

	while (!slab_take(lane, size, out)) {
		result = block_make(slab_next_size(lane), lane, &block);
		if (result == CUDA_ERROR_OUT_OF_MEMORY) /* a smaller slab may be within the limit */
			result = block_make(lane->unit, lane, &block);
		if (result)
			return result;
		result = slab_add(block);
		if (result) {
			block_drop(block);
			return result;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *out, size_t size, CUdevice device)
{
	struct lane *lane = lane_of(device);
	struct block *block;
	CUresult result;

	if (size > SIZE_MAX / 2)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (size < SWAP_SMALL)
		return allocate_small(out, size, lane);
	result = block_make((size + lane->unit - 1) / lane->unit * lane->unit, lane, &block);
	if (result)
		return result;
	*out = block->base;
	return CUDA_SUCCESS;
}

/* -- reports ---------------------------------------------------------------------- */

/* What comes back by a carrier is on the GPU twice while it does, up to two pieces at once
 * (step.c). Other jobs have to leave that free: else none of them and of this one might ever have
 * all of its memory. */
static void report(CUdevice device, struct gl_device *out)
{
	const struct lane *lane = lane_of(device);

	lane_report(device, out);
	if (lane->usable && carrier_brings_back())
		out->fixed += 2 * lane->piece;
}

static bool find(CUdeviceptr pointer, struct memory_place *out)
{
	struct memory_range range;

	if (!swap_used() || !block_place(pointer, out) || !memory_find(out->base, &range))
		return false;
	out->size = range.size;
	out->context = range.context;
	return pointer - out->base < range.size;
}

static void explain(CUdevice device, struct gl_details *out)
{
	lane_explain(device, out);
	out->clean = clean_status();
}

const struct memory_kind swapped_memory = {
    .name = "swapped",
    .row = MEMORY_swapped,
    .limits_itself = true,
    .outlives_contexts = true,
    .serves = serves,
    .allocate = allocate,
    .free = swap_free,
    .find = find,
    .report = report,
    .explain = explain,
    .reclaim = swap_free_deferred,
    .context_ends = lanes_context_ends,
    .context_gone = swap_free_deferred_of,
    .mover = &swap_mover,
};
