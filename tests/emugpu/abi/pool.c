/* pool.c: the emulated libcuda: allocation in stream order, and the pools it comes from. */
#include "abi/client.h"

#include <stdlib.h>

struct emu_pool {
	struct emu_pool *next;
	int device;
	uint64_t id; /* 0: a default pool that has not been used yet */
	int reuse[3];
};

static struct emu_pool defaults[EMU_MAX_DEVICES], *created; /* under emu_lock */
static struct emu_pool *chosen[EMU_MAX_DEVICES];            /* NULL: the default pool */

static CUresult open_pool(struct emu_pool *pool, int device, size_t most)
{
	struct emu_request q = {.op = EMU_POOL_CREATE, .arg = {(uint64_t)device, most}};
	struct emu_reply r;

	TRY(emu_call(&q, &r, NULL));
	*pool = (struct emu_pool){NULL, device, r.r[0], {1, 1, 1}};
	return CUDA_SUCCESS;
}

static CUresult default_pool(int device, struct emu_pool **out)
{
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&emu_lock);
	if (!defaults[device].id)
		result = open_pool(&defaults[device], device, 0);
	pthread_mutex_unlock(&emu_lock);
	*out = &defaults[device];
	return result;
}

static bool is_default(const struct emu_pool *pool)
{
	return pool >= defaults && pool < defaults + EMU_MAX_DEVICES;
}

static CUresult find(CUmemoryPool handle, struct emu_pool **out)
{
	struct emu_pool *pool = (struct emu_pool *)handle;

	TRY(emu_ready());
	*out = is_default(pool) && pool->id ? pool : NULL;
	pthread_mutex_lock(&emu_lock);
	for (struct emu_pool *p = created; p; p = p->next)
		if (p == pool)
			*out = pool;
	pthread_mutex_unlock(&emu_lock);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult current_pool(int device, struct emu_pool **out)
{
	*out = chosen[device];
	return *out ? CUDA_SUCCESS : default_pool(device, out);
}

/* An allocation in stream order exists at once, and is freed when its stream reaches the free. */
static CUresult alloc_async(CUdeviceptr *out, size_t size, CUmemoryPool handle, CUstream stream)
{
	struct emu_request q = {.op = EMU_POOL_ALLOC};
	struct emu_pool *pool;
	struct emu_reply r;
	struct target t;
	CUresult result;

	TRY(emu_target(stream, &t));
	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (t.stream && t.stream->capture)
		return emu_graph_allocate(out, size, &t);
	if (handle)
		TRY(find(handle, &pool));
	else
		TRY(current_pool(t.ctx->device, &pool));
	q.arg[0] = t.ctx->id;
	q.arg[1] = size;
	q.arg[2] = pool->id;
	result = emu_sticky(t.ctx, emu_call(&q, &r, NULL));
	if (!result)
		*out = r.r[0];
	return result;
}

static CUresult free_async(CUdeviceptr pointer, CUstream stream)
{
	struct emu_request range = {.op = EMU_RANGE, .arg = {pointer}};
	struct emu_request q = {.op = EMU_FREE_ORDERED, .arg = {0, pointer}};

	struct emu_reply r;
	struct target t;

	TRY(emu_target(stream, &t));
	TRY(emu_call(&range, &r, NULL));
	if (r.r[0] != pointer || r.r[2] == EMU_PHYSICAL || r.r[2] == EMU_IMPORTED)
		return CUDA_ERROR_INVALID_VALUE;
	/* A graph frees what graphs allocate. */
	if (t.stream && t.stream->capture && r.r[2] != EMU_GRAPH)
		return CUDA_ERROR_INVALID_VALUE;
	return emu_submit(stream, &q, NULL);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream)
{
	return alloc_async(out, size, NULL, emu_legacy(stream));
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t size, CUstream stream)
{
	return alloc_async(out, size, NULL, emu_per_thread(stream));
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool pool,
                                        CUstream stream)
{
	return pool ? alloc_async(out, size, pool, emu_legacy(stream)) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t size, CUmemoryPool pool,
                                             CUstream stream)
{
	return pool ? alloc_async(out, size, pool, emu_per_thread(stream))
	            : CUDA_ERROR_INVALID_VALUE;
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

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device)
{
	TRY(check(device));
	return default_pool(device, (struct emu_pool **)out);
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device)
{
	TRY(check(device));
	return current_pool(device, (struct emu_pool **)out);
}

EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle)
{
	struct emu_pool *pool;

	TRY(check(device));
	TRY(find(handle, &pool));
	if (pool->device != device)
		return CUDA_ERROR_INVALID_VALUE;
	chosen[device] = pool;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *p)
{
	struct emu_pool *pool;
	CUresult result;

	TRY(emu_ready());
	if (!out || !p || p->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->location.type != CU_MEM_LOCATION_TYPE_DEVICE || p->handleTypes)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(check(p->location.id));
	pool = calloc(1, sizeof(*pool));
	result = pool ? open_pool(pool, p->location.id, p->maxSize) : CUDA_ERROR_OUT_OF_MEMORY;
	if (result) {
		free(pool);
		return result;
	}
	pthread_mutex_lock(&emu_lock);
	pool->next = created;
	created = pool;
	pthread_mutex_unlock(&emu_lock);
	*out = (CUmemoryPool)pool;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
	struct emu_request q = {.op = EMU_POOL_DESTROY};
	struct emu_pool *pool;

	TRY(find(handle, &pool));
	if (is_default(pool))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&emu_lock);
	for (struct emu_pool **at = &created; *at; at = &(*at)->next) {
		if (*at == pool) {
			*at = pool->next;
			break;
		}
	}
	pthread_mutex_unlock(&emu_lock);
	if (chosen[pool->device] == pool)
		chosen[pool->device] = NULL;
	q.arg[0] = pool->id;
	free(pool);
	return emu_call(&q, NULL, NULL);
}

/* Settings of reuse have no effect: this pool always reuses freed memory. */
static bool is_reuse(CUmemPool_attribute attribute)
{
	return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
	       attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                      void *value)
{
	struct emu_request q = {.op = EMU_POOL_SET};
	struct emu_pool *pool;

	TRY(find(handle, &pool));
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_reuse(attribute)) {
		pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] =
		    *(int *)value;
		return CUDA_SUCCESS;
	}
	q.arg[0] = pool->id;
	q.arg[1] = (uint64_t)attribute - CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
	q.arg[2] = *(cuuint64_t *)value;
	return emu_call(&q, NULL, NULL);
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                      void *value)
{
	struct emu_request q = {.op = EMU_POOL_GET};
	struct emu_pool *pool;
	struct emu_reply r;

	TRY(find(handle, &pool));
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_reuse(attribute)) {
		*(int *)value =
		    pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
		return CUDA_SUCCESS;
	}
	q.arg[0] = pool->id;
	q.arg[1] = (uint64_t)attribute - CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
	TRY(emu_call(&q, &r, NULL));
	*(cuuint64_t *)value = r.r[0];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
	struct emu_request q = {.op = EMU_POOL_TRIM};
	struct emu_pool *pool;

	TRY(find(handle, &pool));
	q.arg[0] = pool->id;
	q.arg[1] = keep;
	return emu_call(&q, NULL, NULL);
}

/* A pool's own device always reaches it, and peers once they are given access; access for
 * reading only is not possible. */
EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
	struct emu_request q = {.op = EMU_POOL_OPEN};
	struct emu_pool *pool;

	TRY(find(handle, &pool));
	for (size_t i = 0; i < count; i++) {
		if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return CUDA_ERROR_INVALID_VALUE;
		TRY(check(map[i].location.id));
		if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
			return CUDA_ERROR_NOT_SUPPORTED;
		if (map[i].location.id != pool->device &&
		    map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && !emu_info[pool->device].peers)
			return CUDA_ERROR_INVALID_DEVICE;
		if (map[i].location.id == pool->device &&
		    map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < count; i++) {
		q.arg[0] = pool->id;
		q.arg[1] = (uint64_t)map[i].location.id;
		q.arg[2] = map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
		TRY(emu_call(&q, NULL, NULL));
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle,
                                   CUmemLocation *location)
{
	struct emu_request q = {.op = EMU_POOL_IS_OPEN};
	struct emu_reply r;
	struct emu_pool *pool;

	TRY(find(handle, &pool));
	if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	q.arg[0] = pool->id;
	q.arg[1] = (uint64_t)location->id;
	TRY(emu_call(&q, &r, NULL));
	*flags = location->id == pool->device || r.r[0] ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
	                                                : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}
