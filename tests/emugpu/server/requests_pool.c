/* requests_pool.c: pools of stream-ordered memory. The lock is held. */
#include "server/server.h"

static bool create(struct connection *c, const struct emu_request *q)
{
	struct device *device = device_at(c, q->arg[0]);
	struct pool *pool = device ? pool_create(c->process, device, q->arg[1]) : NULL;

	return reply(c, pool ? EMU_OK : EMU_INVALID, (uint64_t[5]){pool ? pool->id : 0});
}

static bool allocate(struct connection *c, const struct emu_request *q)
{
	struct context *context = context_find(c->process, q->arg[0]);
	struct pool *pool = pool_find(c->process, q->arg[2]);
	struct alloc *alloc = NULL;
	enum emu_status status = EMU_INVALID;

	if (context && pool)
		status = context->error ? context->error : context->device->error;
	if (context && pool && !status)
		status = pool_alloc(context, pool, q->arg[1], &alloc);
	return reply(c, status, (uint64_t[5]){alloc ? alloc->base : 0});
}

/* High-water marks can only be set to 0, from where they count again. */
static enum emu_status set(struct pool *pool, uint64_t value, uint64_t to)
{
	if (value == EMU_POOL_THRESHOLD)
		pool->value[value] = to;
	else if ((value == EMU_POOL_RESERVED_HIGH || value == EMU_POOL_USED_HIGH) && !to)
		pool->value[value] = pool->value[value - 1];
	else
		return EMU_INVALID;
	return EMU_OK;
}

static bool open_to(struct connection *c, const struct emu_request *q, struct pool *pool)
{
	const struct device *device = device_at(c, q->arg[1]);

	if (!device)
		return reply(c, EMU_INVALID, NULL);
	if (q->op == EMU_POOL_OPEN)
		pool->open_to[device->index] = q->arg[2];
	return reply(c, EMU_OK, (uint64_t[5]){pool->open_to[device->index]});
}

bool serve_pool(struct connection *c, const struct emu_request *q)
{
	struct pool *pool;

	if (q->op == EMU_POOL_CREATE)
		return create(c, q);
	if (q->op == EMU_POOL_ALLOC)
		return allocate(c, q);
	pool = pool_find(c->process, q->arg[0]);
	if (!pool)
		return reply(c, EMU_INVALID, NULL);
	switch (q->op) {
	case EMU_POOL_DESTROY:
		pool_destroy(c->process, pool);
		break;
	case EMU_POOL_TRIM:
		(void)pool_trim(c->process, pool, q->arg[1]);
		break;
	case EMU_POOL_SET:
		return reply(c, set(pool, q->arg[1], q->arg[2]), NULL);
	case EMU_POOL_OPEN:
	case EMU_POOL_IS_OPEN:
		return open_to(c, q, pool);
	default: /* EMU_POOL_GET */
		if (q->arg[1] >= EMU_POOL_VALUES)
			return reply(c, EMU_INVALID, NULL);
		return reply(c, EMU_OK, (uint64_t[5]){pool->value[q->arg[1]]});
	}
	process_changed(c->process);
	return reply(c, EMU_OK, NULL);
}
