/* cuda_pool.c: the emulated libcuda: allocation in stream order, from pools that keep nothing back.
 */
#include "cuda_client.h"

#include <stdlib.h>
#include <string.h>

struct emu_pool {
	int device;
};

static struct emu_pool defaults[EMU_MAX_DEVICES];
static struct emu_pool *chosen[EMU_MAX_DEVICES]; /* NULL: the default pool */

/* Ordered allocations exist at once and are freed when their stream gets there. */
static CUresult alloc_async(CUdeviceptr *out, size_t size, CUstream stream)
{
	struct target t;

	TRY(emu_target(stream, &t));
	if (t.stream && t.stream->capture)
		return CUDA_ERROR_NOT_SUPPORTED;
	return emu_allocate(out, size, EMU_PLAIN);
}

static CUresult free_async(CUdeviceptr pointer, CUstream stream)
{
	struct emu_request range = {.op = EMU_RANGE, .arg = {pointer}};
	struct emu_request q = {.op = EMU_FREE_ORDERED, .arg = {0, pointer}};

	struct emu_reply r;

	TRY(emu_ready());
	TRY(emu_call(&range, &r, NULL));
	if (r.r[0] != pointer || r.r[2] == EMU_PHYSICAL)
		return CUDA_ERROR_INVALID_VALUE;
	return emu_submit(stream, &q, NULL);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream)
{
	return alloc_async(out, size, emu_legacy(stream));
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t size, CUstream stream)
{
	return alloc_async(out, size, emu_per_thread(stream));
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool pool,
                                        CUstream stream)
{
	(void)pool;
	return alloc_async(out, size, emu_legacy(stream));
}

EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t size, CUmemoryPool pool,
                                             CUstream stream)
{
	(void)pool;
	return alloc_async(out, size, emu_per_thread(stream));
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
	return free_async(pointer, emu_legacy(stream));
}

EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
	return free_async(pointer, emu_per_thread(stream));
}

static CUresult check(CUdevice device)
{
	TRY(emu_ready());
	return device >= 0 && device < emu_devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	TRY(check(device));
	*pool = (CUmemoryPool)&defaults[device];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	TRY(check(device));
	*pool = (CUmemoryPool)(chosen[device] ? chosen[device] : &defaults[device]);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	TRY(check(device));
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	chosen[device] = (struct emu_pool *)pool;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *properties)
{
	struct emu_pool *pool;

	TRY(emu_ready());
	if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(check(properties->location.id));
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pool->device = properties->location.id;
	*out = (CUmemoryPool)pool;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
	struct emu_pool *pool = (struct emu_pool *)handle;

	TRY(emu_ready());
	if (!pool || (pool >= defaults && pool < defaults + EMU_MAX_DEVICES))
		return CUDA_ERROR_INVALID_VALUE;
	if (chosen[pool->device] == pool)
		chosen[pool->device] = NULL;
	free(pool);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	(void)pool;
	(void)attribute;
	(void)value;
	return emu_ready();
}

/* Nothing is kept back, so nothing is reserved and there is no threshold. */
EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	(void)pool;
	TRY(emu_ready());
	if (attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD &&
	    attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		*(cuuint64_t *)value = 0;
	else
		*(int *)value = 0;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	(void)pool;
	(void)keep;
	return emu_ready();
}
