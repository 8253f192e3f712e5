/* requests_ipc.c: plain memory shared between processes. The lock is held. */
#include "server/server.h"

static bool export(struct connection *c, const struct emu_request *q)
{
	struct range range;

	if (!range_at(c->process, q->arg[0], &range) || range.mapping ||
	    range.alloc->kind != EMU_PLAIN)
		return reply(c, EMU_INVALID, NULL);
	range.alloc->exported = true;
	return reply(c, EMU_OK, (uint64_t[5]){range.alloc->id});
}

static bool open(struct connection *c, const struct emu_request *q)
{
	struct context *context = context_find(c->process, q->arg[0]);
	struct alloc *alloc = ipc_find(q->arg[1]);
	struct mapping *mapping;

	if (!context || !alloc || alloc->device != context->device)
		return reply(c, EMU_INVALID, NULL);
	if (context->error || context->device->error)
		return reply(c, context->error ? context->error : context->device->error, NULL);
	if (alloc->process == c->process)
		return reply(c, EMU_OK, (uint64_t[5]){0, true});
	mapping = ipc_open(context, alloc);
	return reply(c, mapping ? EMU_OK : EMU_OOM, (uint64_t[5]){mapping ? mapping->base : 0});
}

static struct mapping *opened_at(const struct process *process, uint64_t base)
{
	for (struct mapping *m = process->mappings; m; m = m->next)
		if (m->base == base && m->context)
			return m;
	return NULL;
}

/* Waits, as when memory is freed, for everything that was submitted to the context. */
static bool close_memory(struct connection *c, const struct emu_request *q)
{
	struct mapping *mapping = opened_at(c->process, q->arg[0]);

	if (mapping && mapping->opened == 1)
		(void)wait_context(c->process, mapping->context->id);
	mapping = opened_at(c->process, q->arg[0]);
	if (!mapping)
		return reply(c, EMU_INVALID, NULL);
	if (!--mapping->opened)
		mapping_remove(c->process, mapping);
	process_changed(c->process);
	return reply(c, EMU_OK, NULL);
}

bool serve_ipc(struct connection *c, const struct emu_request *q)
{
	switch (q->op) {
	case EMU_IPC_EXPORT:
		return export(c, q);
	case EMU_IPC_OPEN:
		return open(c, q);
	default: /* EMU_IPC_CLOSE */
		return close_memory(c, q);
	}
}
