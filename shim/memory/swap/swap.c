/* swap.c: the kind of memory that the interposer moves between device and host (memory:swap).
 *
 * Allocations are mappings at reserved addresses, divided into segments. During a residency
 * (residency.h) every segment is on its device.
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
 *   each segment whenever it is mapped (peers.c).
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
#include "base/fork.h"
#include "base/locks.h"
#include "base/wire.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/ranges.h"
#include "memory/swap/blocks.h"
#include "memory/swap/clean_check.h"
#include "memory/swap/deferred_free.h"
#include "memory/swap/devices.h"
#include "memory/swap/mover.h"
#include "memory/swap/slabs.h"
#include "memory/swap/step.h"
#include "memory/swap/usable.h"
#include "tenant/tenant.h"
#include "work/captures.h"

#include <stdlib.h>

#define SWAP_SMALL (UINT64_C(1) << 20) /* bytes: smaller allocations share slabs */

/* -- allocating ---------------------------------------------------------------- */

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
		if (result == CUDA_ERROR_OUT_OF_MEMORY) /* a smaller slab may be within the limit */
			result = block_make(swap_devices[device].unit, device, &block);
		if (result)
			return result;
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
	CUresult result;

	if (size > SIZE_MAX / 2)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (size < SWAP_SMALL)
		return allocate_small(out, size, device);
	result = block_make((size + unit - 1) / unit * unit, device, &block);
	if (result)
		return result;
	*out = block->base;
	return CUDA_SUCCESS;
}

/* -- reports ---------------------------------------------------------------------- */

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

/* Which of the amounts counts a segment that is fixed. */
static uint64_t *reason(const struct segment *segment, struct gl_details *out)
{
	if (segment->block->shared)
		return &out->shared;
	return segment->unhosted ? &out->unhosted : &out->other;
}

static void explain(CUdevice device, struct gl_details *out)
{
	struct swap_device *d = &swap_devices[device];

	lock_take(&swap_lock);
	for (struct segment *s = d->fixed ? d->oldest : NULL; s; s = s->newer)
		if (s->fixed)
			*reason(s, out) += s->size;
	lock_give(&swap_lock);
	out->left += atomic_exchange(&copiers[device].evicted_clean, 0);
	out->clean = clean_status();
}

const struct memory_kind swapped_memory = {
    .name = "swapped",
    .row = MEMORY_swapped,
    .limits_itself = true,
    .outlives_contexts = true,
    .serves = swap_serves,
    .allocate = allocate,
    .free = swap_free,
    .find = find,
    .report = report,
    .explain = explain,
    .reclaim = swap_free_deferred,
    .context_ends = steps_context_ends,
    .context_gone = swap_free_deferred_of,
    .mover = &swap_mover,
};
