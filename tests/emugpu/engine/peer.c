/* peer.c: which device may reach which memory. Memory that a context allocated is opened to a
 * peer for the whole context, mappings by their own access rights, and pooled memory by those of
 * its pool. Contexts of a process on one device reach what any of them reaches. */
#include "engine/engine.h"

#include <stdlib.h>

static struct peering **find(const struct context *from, const struct context *to)
{
	struct peering **at = &from->process->peerings;

	while (*at && ((*at)->from != from || (*at)->to != to))
		at = &(*at)->next;
	return at;
}

bool peer_enable(struct context *context, struct context *peer)
{
	struct peering **at = find(context, peer);

	if (*at)
		return false;
	*at = calloc(1, sizeof(**at));
	if (!*at)
		abort(); /* if the emulator itself has no host memory it gives up */
	**at = (struct peering){NULL, context, peer};
	return true;
}

static void end(struct peering **at)
{
	struct peering *peering = *at;

	*at = peering->next;
	free(peering);
}

bool peer_disable(const struct context *context, const struct context *peer)
{
	struct peering **at = find(context, peer);

	if (!*at)
		return false;
	end(at);
	return true;
}

void peer_leave(const struct context *context)
{
	struct peering **at = &context->process->peerings;

	while (*at) {
		if ((*at)->from == context || (*at)->to == context)
			end(at);
		else
			at = &(*at)->next;
	}
}

static bool enabled(const struct process *process, const struct device *device,
                    const struct context *owner)
{
	for (const struct peering *p = process->peerings; p; p = p->next)
		if (p->to == owner && p->from->device == device)
			return true;
	return false;
}

/* At an address that the program has reserved itself. */
static bool placed(const struct range *range)
{
	return range->mapping && !range->mapping->context;
}

unsigned device_access(const struct process *process, const struct device *device,
                       const struct range *range)
{
	const struct alloc *alloc = range->alloc;

	if (placed(range))
		return range->mapping->access[device->index];
	if (alloc->device == device || alloc->managed)
		return ACCESS_BOTH;
	if (range->mapping) /* another process' */
		return ACCESS_NONE;
	if (alloc->pool)
		return alloc->pool->open_to[device->index] ? ACCESS_BOTH : ACCESS_NONE;
	return alloc->context && enabled(process, device, alloc->context) ? ACCESS_BOTH
	                                                                  : ACCESS_NONE;
}

unsigned context_access(const struct context *context, enum emu_reach how,
                        const struct range *range)
{
	const struct device *device = context->device;

	/* A copy goes directly if a device may reach the memory, and through the host otherwise. */
	if (how == EMU_BY_PEER_COPY ||
	    (how == EMU_BY_COPY && !placed(range) && !range->alloc->pool))
		device = range->alloc->device;
	return device_access(context->process, device, range);
}
