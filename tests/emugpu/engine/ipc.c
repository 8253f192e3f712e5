/* ipc.c: plain memory that other processes open, which lives until the last of them closes it. */
#include "engine/engine.h"

#include <stdlib.h>

struct alloc *ipc_find(uint64_t id)
{
	for (struct process *p = emulator.processes; p; p = p->next)
		for (struct context *c = p->contexts; c; c = c->next)
			for (struct alloc *a = c->allocs; a; a = a->next)
				if (a->id == id && a->kind == EMU_PLAIN)
					return a;
	return NULL;
}

/* Mapped once in each context, however often it is opened there. */
struct mapping *ipc_open(struct context *context, struct alloc *alloc)
{
	struct process *process = context->process;
	struct mapping *m = process->mappings;

	while (m && (m->context != context || m->alloc != alloc))
		m = m->next;
	if (!m) {
		m = calloc(1, sizeof(*m));
		if (!m)
			return NULL;
		*m = (struct mapping){.next = process->mappings,
		                      .alloc = alloc,
		                      .base = take_addresses(alloc->size, 0),
		                      .size = alloc->size,
		                      .context = context};
		process->mappings = m;
		alloc->mappings++;
	}
	m->opened++;
	return m;
}

void ipc_leave(struct context *context)
{
	struct process *process = context->process;
	struct mapping *next;

	for (struct mapping *m = process->mappings; m; m = next) {
		next = m->next;
		if (m->context == context)
			mapping_remove(process, m);
	}
}
