/* alloc.c: allocations by address, of the kind of memory that serves the device. Those that a
 * program knows by a handle are in arrays.c. */
#include "base/compiler.h"
#include "channels/channels.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/kinds.h"
#include "memory/limit.h"
#include "memory/pools.h"
#include "memory/ranges.h"
#include "memory/swap/deferred_free.h"
#include "memory/swap/lane.h"
#include "tenant/tenant.h"
#include "work/wait.h"

#include <stdint.h>

/* Allocates memory of the kind that serves the current device. */
static CUresult allocate(CUdeviceptr *pointer, size_t size)
{
	CUdevice device;
	CUresult result;

	result = REAL(cuCtxGetDevice)(&device);
	if (result)
		return result;
	result = tenant_wait();
	if (result)
		return result;
	return memory_allocate(memory_kind_on(device), pointer, size, device, NULL);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size)
{
	__typeof__(&cuMemAlloc_v2) real = DRIVER(cuMemAlloc_v2);

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	if (!pointer || !size)
		return real(pointer, size); /* which returns the right error */
	return allocate(pointer, size);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                   unsigned int element)
{
	__typeof__(&cuMemAllocPitch_v2) real = DRIVER(cuMemAllocPitch_v2);
	const size_t unit =
	    512; /* bytes to which the driver has aligned rows on every device so far */

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	if (!pointer || !pitch || !width || !height ||
	    (element != 4 && element != 8 && element != 16) || width > SIZE_MAX / 2 / height)
		return real(pointer, pitch, width, height, element);
	*pitch = (width + unit - 1) / unit * unit;
	return allocate(pointer, *pitch * height);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t size, unsigned int flags)
{
	__typeof__(&cuMemAllocManaged) real = DRIVER(cuMemAllocManaged);
	CUdevice device;
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	if (!pointer || !size)
		return real(pointer, size, flags);
	result = REAL(cuCtxGetDevice)(&device);
	if (result)
		return result;
	result = limit_take(device, size);
	if (result)
		return result;
	result = real(pointer, size, flags);
	return memory_note(result, result ? 0 : *pointer, size, device, &managed_memory);
}

static CUresult free_range(CUdeviceptr pointer, const struct memory_range *range, bool wait)
{
	if (range->pool)
		pool_change(range->pool, -(int64_t)range->size, 0);
	return range->kind->free(pointer, range, wait);
}

/* Work that may use the memory was submitted before. It is waited for here, where no stop has to
 * wait for this thread. What the driver frees, it waits for itself. Returns false if the work is
 * still to be waited for. */
static bool finished(CUdeviceptr pointer, CUresult *result)
{
	bool works = residency_lasts() || channels_stop_phase() != STOP_NONE;
	struct memory_range range;

	return works && memory_find(pointer, &range) && !range.freed &&
	       range.kind == &swapped_memory && !swap_defers() &&
	       context_wait(range.context, result);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
	__typeof__(&cuMemFree_v2) real = DRIVER(cuMemFree_v2);
	CUresult waited = CUDA_SUCCESS, result;
	struct memory_range range;
	bool has;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	has = finished(pointer, &waited);
	result = gate_enter_unless_stopped();
	if (result)
		return result;
	/* The range is removed before the memory is freed, since another thread may be given the
	 * same address at once. */
	if (memory_find(pointer, &range) && range.freed)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (!memory_remove(pointer, &range))
		result = real(pointer);
	else
		result = free_range(pointer, &range, !has);
	gate_leave();
	return result ? result : waited;
}

/* -- the 32-bit forms of CUDA 3: the driver allocates, as it must choose the address ---- */

EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int size)
{
	__typeof__(&cuMemAlloc) real = DRIVER(cuMemAlloc);
	CUdevice device;
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = REAL(cuCtxGetDevice)(&device);
	if (result)
		return result;
	result = limit_take(device, size);
	if (result)
		return result;
	result = real(pointer, size);
	return memory_note(result, result ? 0 : *pointer, size, device, &fixed_memory);
}

EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width,
                                unsigned int height, unsigned int element)
{
	__typeof__(&cuMemAllocPitch) real = DRIVER(cuMemAllocPitch);
	size_t asked = (size_t)width * height, size = asked;
	CUdevice device;
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = REAL(cuCtxGetDevice)(&device);
	if (result)
		return result;
	result = limit_take(device, asked);
	if (result)
		return result;
	result = real(pointer, pitch, width, height, element);
	if (!result)
		size = (size_t)*pitch * height;
	limit_add(device, size - asked); /* the driver has made the rows longer */
	return memory_note(result, result ? 0 : *pointer, size, device, &fixed_memory);
}

EXPORT CUresult cuMemFree(CUdeviceptr_v1 pointer)
{
	__typeof__(&cuMemFree) real = DRIVER(cuMemFree);

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	memory_remove(pointer, NULL);
	return real(pointer);
}
