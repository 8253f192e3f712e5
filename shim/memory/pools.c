/* pools.c: what is known of the program's memory pools.
 *
 * Allocations from a pool get the device's kind of memory, so the driver's pool does not have them.
 * We add them to the pool's attributes all the same. A pool that other processes may import keeps
 * the driver's memory, since managed memory cannot be exported.
 */
#include "memory/pools.h"

#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"

#include <stdlib.h>

struct pool {
	struct pool *next;
	CUmemoryPool handle;
	enum pool_kind kind;
	CUdevice device; /* -1: not known */
	/* Bytes. `kept` are those for later allocations; reserved are the used and the kept ones.
	 */
	uint64_t used, used_high;
	uint64_t kept, reserved_high;
	uint64_t threshold;
};

static struct pool *pools;
static struct lock lock = LOCK(LOCK_POOLS);

/* The caller holds the lock. */
static struct pool *find(CUmemoryPool handle)
{
	struct pool *pool = pools;

	while (pool && pool->handle != handle)
		pool = pool->next;
	return pool;
}

/* The caller holds the lock. Returns NULL if the host is out of memory. */
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

/* A free that has begun may be noted only after another thread has destroyed the pool, whose bytes
 * are forgotten by then. */
static uint64_t changed(uint64_t bytes, int64_t by)
{
	return by < 0 && bytes < (uint64_t)-by ? 0 : bytes + (uint64_t)by;
}

void pool_change(CUmemoryPool handle, int64_t used, int64_t kept)
{
	struct pool *pool;
	uint64_t reserved;

	lock_take(&lock);
	pool = find_or_make(handle);
	if (pool) {
		pool->used = changed(pool->used, used);
		pool->kept = changed(pool->kept, kept);
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

void pool_classify(CUmemoryPool handle, CUdevice device, enum pool_kind kind)
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

void pool_forget(CUmemoryPool handle)
{
	struct pool *gone = NULL;

	lock_take(&lock);
	for (struct pool **at = &pools; *at; at = &(*at)->next) {
		if ((*at)->handle == handle) {
			gone = *at;
			*at = gone->next;
			break;
		}
	}
	lock_give(&lock);
	free(gone);
}

uint64_t pool_attribute(CUmemoryPool handle, CUmemPool_attribute attribute)
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

/* The driver allows to set a high-water mark to zero only, which resets it to the current value. */
void pool_set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, const void *value)
{
	struct pool *pool;

	lock_take(&lock);
	pool = find_or_make(handle);
	if (pool && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		pool->threshold = *(const cuuint64_t *)value;
	else if (pool && attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		pool->used_high = pool->used;
	else if (pool && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		pool->reserved_high = pool->used + pool->kept;
	lock_give(&lock);
}

static void in_child(void)
{
	lock_after_fork(&lock);
	pools = NULL; /* they are the parent's */
}
FORK_WATCH(in_child);
