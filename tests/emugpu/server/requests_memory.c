/* requests_memory.c: requests to allocate, free and describe memory. The lock is held. */
#include "server/server.h"

static bool allocate(struct connection *c, const struct emu_request *q)
{
	struct context *context = context_find(c->process, q->arg[0]);
	struct alloc *alloc = NULL;
	enum emu_status status;

	if (!context)
		return reply(c, EMU_INVALID, NULL);
	status = context_status(context);
	if (!status)
		status = alloc_create(context, q->arg[1], (enum emu_memory)q->arg[2], &alloc);
	return reply(c, status, (uint64_t[5]){alloc ? alloc->base : 0});
}

/* As cuMemFree does: after everything that was submitted to the context. */
static bool release(struct connection *c, const struct emu_request *q)
{
	enum emu_status status = wait_context(c->process, q->arg[0]);
	struct context *context = context_find(c->process, q->arg[0]);
	struct alloc *alloc = context ? alloc_find(c->process, q->arg[1]) : NULL;

	if (!alloc || alloc->base != q->arg[1] || alloc == context->overhead)
		return reply(c, status ? status : EMU_INVALID, NULL);
	alloc->graph.unfreed = false;
	if (alloc->kind == EMU_GRAPH)
		graph_freed(alloc);
	else if (alloc->pool)
		pool_free(alloc);
	else
		alloc_free(alloc);
	pools_synchronized(c->process);
	process_changed(c->process);
	return reply(c, status, NULL);
}

static bool tell_range(struct connection *c, const struct emu_request *q)
{
	struct range range;
	uint64_t r[5];

	if (!range_at(c->process, q->arg[0], &range))
		return reply(c, EMU_INVALID, NULL);
	r[0] = range.base;
	r[1] = range.size;
	r[2] = range.mapping && range.mapping->context ? EMU_IMPORTED : range.alloc->kind;
	r[3] = range.alloc->context ? range.alloc->context->id : 0;
	r[4] = ordinal_of(c, range.alloc->device);
	return reply(c, EMU_OK, r);
}

/* A copy may span adjacent mappings. */
static bool check(struct connection *c, const struct emu_request *q)
{
	const struct context *context = context_find(c->process, q->arg[3]);
	uint64_t pointer = q->arg[0], left = q->arg[1];
	struct range range;

	while (context && left && range_at(c->process, pointer, &range)) {
		if ((context_access(context, (enum emu_reach)q->arg[4], &range) & q->arg[2]) !=
		    q->arg[2])
			break;
		if (range.bytes > left)
			range.bytes = left;
		pointer += range.bytes;
		left -= range.bytes;
	}
	return reply(c, left ? EMU_INVALID : EMU_OK, NULL);
}

/* The time for so many bytes at a speed; 0: it takes none. */
static void pass(uint64_t bytes, uint64_t speed)
{
	if (bytes && speed)
		take_time((uint64_t)((double)bytes * 1e9 / (double)speed));
}

bool serve_memory(struct connection *c, const struct emu_request *q)
{
	uint64_t seq;

	switch (q->op) {
	case EMU_ALLOC:
		return allocate(c, q);
	case EMU_FREE:
		return release(c, q);
	case EMU_RANGE:
		return tell_range(c, q);
	case EMU_CHECK:
		return check(c, q);
	case EMU_HOST_PIN:
		c->process->registered += q->arg[0];
		pass(q->arg[0], process_model(c->process)->pin);
		return reply(c, EMU_OK, NULL);
	default: /* EMU_HOST_UNPIN */
		seq = emulator.next_seq;
		while (!process_idle(c->process, seq) && !c->process->dead)
			wait_change(c->process);
		c->process->registered -= q->arg[0];
		pass(q->arg[0], process_model(c->process)->unpin);
		return reply(c, EMU_OK, NULL);
	}
}
