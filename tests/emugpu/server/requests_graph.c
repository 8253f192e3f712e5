/* requests_graph.c: memory of graphs. The lock is held. */
#include "server/server.h"

/* Requests about a device. */
static bool with_device(struct connection *c, const struct emu_request *q)
{
	struct device *device = device_at(c, q->arg[0]);
	struct alloc *alloc = NULL;
	enum emu_status status;
	uint64_t *values;

	if (!device)
		return reply(c, EMU_INVALID, NULL);
	values = c->process->graph_memory[device->index];
	switch (q->op) {
	case EMU_GRAPH_RESERVE:
		status = graph_reserve(c->process, device, q->arg[1], &alloc);
		return reply(c, status, (uint64_t[5]){alloc ? alloc->base : 0});
	case EMU_GRAPH_TRIM:
		graph_trim(c->process, device);
		process_changed(c->process);
		return reply(c, EMU_OK, NULL);
	case EMU_GRAPH_GET:
		if (q->arg[1] >= EMU_GRAPH_VALUES)
			return reply(c, EMU_INVALID, NULL);
		return reply(c, EMU_OK, (uint64_t[5]){values[q->arg[1]]});
	default: /* EMU_GRAPH_RESET */
		if (q->arg[1] != EMU_GRAPH_USED_HIGH && q->arg[1] != EMU_GRAPH_RESERVED_HIGH)
			return reply(c, EMU_INVALID, NULL);
		values[q->arg[1]] = values[q->arg[1] - 1];
		return reply(c, EMU_OK, NULL);
	}
}

bool serve_graph(struct connection *c, const struct emu_request *q)
{
	enum emu_status status = EMU_OK;
	struct alloc *alloc;

	if (q->op != EMU_GRAPH_BACK && q->op != EMU_GRAPH_CANCEL && q->op != EMU_GRAPH_DROP)
		return with_device(c, q);
	alloc = alloc_find(c->process, q->arg[0]);
	if (!alloc || alloc->kind != EMU_GRAPH)
		return reply(c, EMU_INVALID, NULL);
	if (q->op == EMU_GRAPH_BACK)
		status = graph_back(alloc, (enum emu_backing)q->arg[1]);
	else if (q->op == EMU_GRAPH_CANCEL)
		graph_cancel(alloc);
	else
		graph_drop(alloc);
	return reply(c, status, NULL);
}
