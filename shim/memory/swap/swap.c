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
#include "base/debug.h"
#include "base/fork.h"
#include "base/locks.h"
#include "base/wire.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/ranges.h"
#include "memory/swap/blocks.h"
#include "memory/swap/deferred_free.h"
#include "memory/swap/devices.h"
#include "memory/swap/looks.h"
#include "memory/swap/mover.h"
#include "memory/swap/slabs.h"
#include "memory/swap/step.h"
#include "memory/swap/usable.h"
#include "tenant/tenant.h"
#include "work/captures.h"

#include <stdlib.h>

#define SWAP_SMALL (UINT64_C(1) << 20) /* below it allocations share slabs */

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
		if (result == CUDA_ERROR_OUT_OF_MEMORY) /* the limit may be near */
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

/* -- what is said of it ------------------------------------------------------------ */

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

static void explain(CUdevice device, struct gl_details *out)
{
	struct swap_device *d = &swap_devices[device];

	lock_take(&swap_lock);
	for (struct segment *s = d->fixed ? d->oldest : NULL; s; s = s->newer)
		if (s->fixed)
			*(s->block->shared ? &out->shared : &out->unhosted) += s->size;
	lock_give(&swap_lock);
	out->left += atomic_exchange(&copiers[device].left_clean, 0);
	out->clean = looks_clean();
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
    .reclaim = swap_catch_up,
    .context_ends = steps_context_ends,
    .context_gone = swap_free_of_context,
    .mover = &swap_mover,
};
