/* pools.c: memory pools, and what they say of themselves.
 *
 * What comes from a pool becomes managed and is not the pool's any more; its
 * attributes count it all the same. A pool that other processes may import
 * stays plain: managed memory cannot be exported.
 */
#include "base/compiler.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "memory/memory.h"

#include <stdlib.h>

struct pool {
	struct pool *next;
	CUmemoryPool handle;
	enum pool_kind kind;
	CUdevice device; /* -1: not known */
	uint64_t used, used_high;
	uint64_t kept, reserved_high; /* reserved: used or kept for the next allocation */
	uint64_t threshold;
};

static struct pool *pools;
static struct lock lock = LOCK(LOCK_POOLS);

/* The lock is held. */
static struct pool *find(CUmemoryPool handle)
{
	struct pool *pool = pools;

	while (pool && pool->handle != handle)
		pool = pool->next;
	return pool;
}

static struct pool *find_or_make(CUmemoryPool handle)
{
	struct pool *pool = find(handle);

	if (!pool) {
		pool = calloc(1, sizeof(*pool));
		if (pool) {
			*pool = (struct pool){.next = pools, .handle = handle, .device = -1};
			pool->kind = POOL_IS_OURS;
			pools = pool;
		}
	}
	return pool;
}

enum pool_kind pool_kind(CUmemoryPool handle)
{
	enum pool_kind kind;
	struct pool *pool;

	lock_take(&lock);
	pool = find(handle);
	kind = pool ? pool->kind : POOL_IS_OURS;
	lock_give(&lock);
	return kind;
}

CUdevice pool_device(CUmemoryPool handle, CUdevice otherwise)
{
	CUdevice device = otherwise;
	struct pool *pool;

	lock_take(&lock);
	pool = find(handle);
	if (pool && pool->device >= 0)
		device = pool->device;
	lock_give(&lock);
	return device;
}

void pool_change(CUmemoryPool handle, int64_t used, int64_t kept)
{
	struct pool *pool;
	uint64_t reserved;

	lock_take(&lock);
	pool = find_or_make(handle);
	if (pool) {
		/* A free beside the pool's end may come when nothing is known of it any more. */
		if (used < 0 && pool->used < (uint64_t)-used)
			used = -(int64_t)pool->used;
		pool->used += (uint64_t)used;
		pool->kept += (uint64_t)kept;
		reserved = pool->used + pool->kept;
		pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
		pool->reserved_high =
		    reserved > pool->reserved_high ? reserved : pool->reserved_high;
	}
	lock_give(&lock);
}

uint64_t pool_kept(CUmemoryPool handle)
{
	uint64_t bytes = 0;

	lock_take(&lock);
	for (struct pool *pool = pools; pool; pool = pool->next)
		if (!handle || pool->handle == handle)
			bytes += pool->kept;
	lock_give(&lock);
	return bytes;
}

uint64_t pool_threshold(CUmemoryPool handle)
{
	uint64_t threshold;
	struct pool *pool;

	lock_take(&lock);
	pool = find(handle);
	threshold = pool ? pool->threshold : 0;
	lock_give(&lock);
	return threshold;
}

static void classify(CUmemoryPool handle, CUdevice device, enum pool_kind kind)
{
	struct pool *pool;

	lock_take(&lock);
	pool = find_or_make(handle);
	if (pool) {
		pool->device = device;
		pool->kind = kind;
	}
	lock_give(&lock);
}

/* -- the driver's functions -------------------------------------------------- */

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	NEED(cuMemPoolCreate);
	TRY(real(pool, props));
	if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		classify(*pool, -1, POOL_NOT_OURS);
	else if (props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED && !props->handleTypes)
		classify(*pool, props->location.id, POOL_IS_OURS);
	else
		classify(*pool, props->location.id, POOL_STAYS_PLAIN);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
	struct pool *gone = NULL;

	NEED(cuMemPoolDestroy);
	free_blocks_trim(handle, 0, true);
	TRY(real(handle));
	memory_forget_pool(handle);
	lock_take(&lock);
	for (struct pool **at = &pools; *at && !gone; at = &(*at)->next) {
		if ((*at)->handle != handle)
			continue;
		gone = *at;
		*at = gone->next;
		break;
	}
	lock_give(&lock);
	free(gone);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t least)
{
	NEED(cuMemPoolTrimTo);
	TRY(real(pool, least));
	free_blocks_trim(pool, least, false);
	return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 13000
#define GET_POOL(name)                                                                             \
	EXPORT CUresult name(CUmemoryPool *pool, CUmemLocation *location,                          \
	                     CUmemAllocationType type)                                             \
	{                                                                                          \
		NEED(name);                                                                        \
		TRY(real(pool, location, type));                                                   \
		if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)                                 \
			classify(*pool, -1, POOL_NOT_OURS);                                        \
		else if (type != CU_MEM_ALLOCATION_TYPE_PINNED)                                    \
			classify(*pool, location->id, POOL_STAYS_PLAIN);                           \
		return CUDA_SUCCESS;                                                               \
	}

GET_POOL(cuMemGetDefaultMemPool)
GET_POOL(cuMemGetMemPool)
#endif

/* What the pool's memory allows, swapped memory of its device allows. */
EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	CUdevice device, current = -1;

	NEED(cuMemPoolSetAccess);
	TRY(real(pool, map, count));
	REAL(cuCtxGetDevice)(&current);
	device = pool_device(pool, current);
	for (size_t i = 0; i < count; i++)
		if (map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
		    map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
			swap_peer(device, map[i].location.id);
	return CUDA_SUCCESS;
}

/* Of our bytes: what the attribute adds. */
static uint64_t ours(CUmemoryPool handle, CUmemPool_attribute attribute)
{
	struct pool *pool;
	uint64_t bytes = 0;

	lock_take(&lock);
	pool = find(handle);
	if (pool && pool->kind == POOL_IS_OURS) {
		if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
			bytes = pool->used;
		else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
			bytes = pool->used_high;
		else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
			bytes = pool->used + pool->kept;
		else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
			bytes = pool->reserved_high;
	}
	lock_give(&lock);
	return bytes;
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	uint64_t bytes;

	NEED(cuMemPoolGetAttribute);
	TRY(real(pool, attribute, value));
	bytes = ours(pool, attribute);
	if (bytes)
		*(cuuint64_t *)value += bytes;
	return CUDA_SUCCESS;
}

/* Setting a high-water mark, which the driver allows to zero only, starts it anew. */
EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                      void *value)
{
	struct pool *pool;

	NEED(cuMemPoolSetAttribute);
	TRY(real(handle, attribute, value));
	lock_take(&lock);
	pool = find_or_make(handle);
	if (pool && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		pool->threshold = *(cuuint64_t *)value;
	else if (pool && attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		pool->used_high = pool->used;
	else if (pool && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		pool->reserved_high = pool->used + pool->kept;
	lock_give(&lock);
	return CUDA_SUCCESS;
}

static void in_child(void)
{
	lock_after_fork(&lock);
	pools = NULL; /* the parent's */
}
FORK_WATCH(in_child);
