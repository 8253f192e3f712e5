/* pool.c: pools of stream-ordered memory.
 *
 * Memory that is freed stays with its pool until the next synchronization, and then
 * as much of it as the pool's threshold says. Each allocation has blocks of its own.
 */
#include "engine/engine.h"

#include <stdlib.h>

static uint64_t reserved_by(const struct alloc *alloc)
{
	return alloc->n_blocks * alloc->device->model->block;
}

static void add(struct pool *pool, enum emu_pool_value value, uint64_t bytes)
{
	pool->value[value] += bytes;
	if (pool->value[value + 1] < pool->value[value])
		pool->value[value + 1] = pool->value[value];
}

struct pool *pool_create(struct process *process, struct device *device, uint64_t most)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	pool->device = device;
	pool->id = emulator.next_id++;
	pool->most = most;
	pool->next = process->pools;
	process->pools = pool;
	return pool;
}

struct pool *pool_find(const struct process *process, uint64_t id)
{
	for (struct pool *p = process->pools; p; p = p->next)
		if (p->id == id && !p->destroyed)
			return p;
	return NULL;
}

/* A destroyed pool ends once it has no allocations and keeps nothing. */
static void settle(struct process *process, struct pool *pool)
{
	if (!pool->destroyed || pool->value[EMU_POOL_RESERVED])
		return;
	for (struct pool **at = &process->pools; *at; at = &(*at)->next) {
		if (*at == pool) {
			*at = pool->next;
			free(pool);
			return;
		}
	}
}

void pool_destroy(struct process *process, struct pool *pool)
{
	pool->value[EMU_POOL_THRESHOLD] = 0;
	(void)pool_trim(process, pool, 0);
	pool->destroyed = true;
	settle(process, pool);
}

static struct alloc *idle_one(const struct process *process, const struct pool *pool,
                              uint64_t blocks)
{
	for (struct alloc *a = process->allocs; a; a = a->next)
		if (a->pool == pool && a->idle && a->n_blocks == blocks && !alloc_pinned(a))
			return a;
	return NULL;
}

enum emu_status pool_alloc(struct context *context, struct pool *pool, uint64_t size,
                           struct alloc **out)
{
	struct process *process = context->process;
	uint64_t blocks = blocks_of(pool->device, size);
	uint64_t bytes = blocks * pool->device->model->block;
	enum emu_status status;

	if (!size || pool->device != context->device)
		return EMU_INVALID;
	*out = idle_one(process, pool, blocks);
	if (*out) {
		(*out)->idle = false;
		(*out)->size = size;
	} else {
		if (pool->most && pool->value[EMU_POOL_RESERVED] + bytes > pool->most)
			(void)pool_trim(process, pool, 0);
		if (pool->most && pool->value[EMU_POOL_RESERVED] + bytes > pool->most)
			return EMU_OOM;
		status = alloc_loose(process, pool->device, size, EMU_POOLED, out);
		if (status)
			return status;
		(*out)->base = take_addresses(size, 0);
		(*out)->pool = pool;
		add(pool, EMU_POOL_RESERVED, bytes);
	}
	add(pool, EMU_POOL_USED, size);
	return EMU_OK;
}

void pool_free(struct alloc *alloc)
{
	alloc->pool->value[EMU_POOL_USED] -= alloc->size;
	alloc->idle = true;
	if (alloc->pool->destroyed && !alloc_pinned(alloc))
		alloc_free(alloc);
}

void pool_forget(struct alloc *alloc)
{
	struct pool *pool = alloc->pool;

	if (!alloc->idle)
		pool->value[EMU_POOL_USED] -= alloc->size;
	pool->value[EMU_POOL_RESERVED] -= reserved_by(alloc);
	alloc->pool = NULL;
	settle(alloc->process, pool);
}

bool pool_trim(struct process *process, struct pool *pool, uint64_t keep)
{
	struct alloc *next;
	bool any = false;

	for (struct alloc *a = process->allocs; a; a = next) {
		next = a->next;
		if (a->pool != pool || !a->idle || alloc_pinned(a) ||
		    pool->value[EMU_POOL_RESERVED] - reserved_by(a) < keep)
			continue;
		alloc_free(a);
		any = true;
	}
	return any;
}

void pools_synchronized(struct process *process)
{
	for (struct pool *p = process->pools, *next; p; p = next) {
		next = p->next;
		if (pool_trim(process, p, p->value[EMU_POOL_THRESHOLD]))
			changed();
	}
}

bool pools_yield(struct process *process, const struct device *device)
{
	bool any = false;

	for (struct pool *p = process->pools, *next; p; p = next) {
		next = p->next;
		any |= p->device == device && pool_trim(process, p, 0);
	}
	return any;
}

void pools_close(struct process *process, const struct device *device)
{
	struct alloc *next;

	for (struct alloc *a = process->allocs; a; a = next) {
		next = a->next;
		if (a->pool && (!device || a->device == device))
			alloc_free(a);
	}
	while (!device && process->pools) {
		struct pool *pool = process->pools;

		process->pools = pool->next;
		free(pool);
	}
}
