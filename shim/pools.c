/* pools.c: memory pools, and what they say of themselves.
 *
 * What comes from a pool becomes managed and is not the pool's any more; its
 * attributes count it all the same. A pool that other processes may import
 * stays plain: managed memory cannot be exported.
 */
#include "memory.h"

#include <pthread.h>
#include <stdlib.h>

struct pool {
	struct pool *next;
	CUmemoryPool handle;
	enum pool_kind kind;
	CUdevice device; /* -1: not known */
	uint64_t used, high;
};

static struct pool *pools;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

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
			*pool = (struct pool){pools, handle, POOL_BECOMES_MANAGED, -1, 0, 0};
			pools = pool;
		}
	}
	return pool;
}

enum pool_kind pool_kind(CUmemoryPool handle)
{
	enum pool_kind kind;
	struct pool *pool;

	pthread_mutex_lock(&lock);
	pool = find(handle);
	kind = pool ? pool->kind : POOL_BECOMES_MANAGED;
	pthread_mutex_unlock(&lock);
	return kind;
}

CUdevice pool_device(CUmemoryPool handle, CUdevice otherwise)
{
	CUdevice device = otherwise;
	struct pool *pool;

	pthread_mutex_lock(&lock);
	pool = find(handle);
	if (pool && pool->device >= 0)
		device = pool->device;
	pthread_mutex_unlock(&lock);
	return device;
}

void pool_count(CUmemoryPool handle, int64_t bytes)
{
	struct pool *pool;

	if (!handle)
		return;
	pthread_mutex_lock(&lock);
	pool = find_or_make(handle);
	if (pool) {
		pool->used += (uint64_t)bytes;
		pool->high = pool->used > pool->high ? pool->used : pool->high;
	}
	pthread_mutex_unlock(&lock);
}

static void classify(CUmemoryPool handle, CUdevice device, enum pool_kind kind)
{
	struct pool *pool;

	pthread_mutex_lock(&lock);
	pool = find_or_make(handle);
	if (pool) {
		pool->device = device;
		pool->kind = kind;
	}
	pthread_mutex_unlock(&lock);
}

/* -- the driver's functions -------------------------------------------------- */

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	NEED(cuMemPoolCreate);
	TRY(real(pool, props));
	if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		classify(*pool, -1, POOL_NOT_OURS);
	else if (props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED && !props->handleTypes)
		classify(*pool, props->location.id, POOL_BECOMES_MANAGED);
	else
		classify(*pool, props->location.id, POOL_STAYS_PLAIN);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
	NEED(cuMemPoolDestroy);
	TRY(real(handle));
	pthread_mutex_lock(&lock);
	for (struct pool **at = &pools; *at; at = &(*at)->next) {
		struct pool *pool = *at;

		if (pool->handle == handle) {
			*at = pool->next;
			free(pool);
			break;
		}
	}
	pthread_mutex_unlock(&lock);
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

/* Of our bytes: what the attribute adds. */
static uint64_t ours(CUmemoryPool handle, CUmemPool_attribute attribute)
{
	struct pool *pool;
	uint64_t bytes = 0;

	pthread_mutex_lock(&lock);
	pool = find(handle);
	if (pool && pool->kind == POOL_BECOMES_MANAGED) {
		if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ||
		    attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
			bytes = pool->used;
		else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ||
		         attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
			bytes = pool->high;
	}
	pthread_mutex_unlock(&lock);
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
	if (attribute != CU_MEMPOOL_ATTR_USED_MEM_HIGH &&
	    attribute != CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	pool = find(handle);
	if (pool)
		pool->high = pool->used;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

void pools_after_fork(void)
{
	pthread_mutex_init(&lock, NULL);
	pools = NULL; /* the parent's */
}
