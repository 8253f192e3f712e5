/* checkpoint.c: all that a process has on devices leaves them for host memory, and comes back, to
 * the same devices or to others. */
#include "engine/engine.h"

/* Calls a function for all memory of the process. */
static uint64_t each_alloc(const struct process *process, uint64_t (*act)(struct alloc *, void *),
                           void *data)
{
	uint64_t sum = 0;

	for (const struct context *c = process->contexts; c; c = c->next)
		for (struct alloc *a = c->allocs; a; a = a->next)
			sum += act(a, data);
	for (struct alloc *a = process->allocs; a; a = a->next)
		sum += act(a, data);
	return sum;
}

static uint64_t forbids(struct alloc *alloc, void *unused)
{
	(void)unused;
	return alloc->managed || alloc->exported || alloc->imports;
}

bool checkpoint_possible(const struct process *process)
{
	for (const struct mapping *m = process->mappings; m; m = m->next)
		if (m->context)
			return false; /* memory of another process */
	return !process->mps && !process->imports && !each_alloc(process, forbids, NULL);
}

static uint64_t save(struct alloc *alloc, void *unused)
{
	(void)unused;
	return alloc_save(alloc);
}

uint64_t checkpoint_save(struct process *process)
{
	return each_alloc(process, save, NULL);
}

/* -- to devices ------------------------------------------------------------------------- */

struct wish {
	const uint32_t *to;
	uint32_t device;
};

static uint64_t needs(struct alloc *alloc, void *data)
{
	const struct wish *wish = data;

	return wish->to[alloc->device->index] == wish->device ? alloc_saved(alloc) : 0;
}

bool checkpoint_fits(const struct process *process, const uint32_t to[EMU_MAX_DEVICES])
{
	for (uint32_t i = 0; i < emulator.n_devices; i++) {
		struct wish wish = {to, i};

		if (each_alloc(process, needs, &wish) > device_free_bytes(&emulator.devices[i]))
			return false;
	}
	return true;
}

static uint64_t load(struct alloc *alloc, void *data)
{
	const uint32_t *to = data;
	uint64_t bytes = alloc_saved(alloc);

	alloc->device = &emulator.devices[to[alloc->device->index]];
	alloc_load(alloc);
	return bytes;
}

/* What is kept for each device goes to the one that takes its place. */
#define PERMUTE(array, to)                                                                         \
	do {                                                                                       \
		__typeof__((array)[0]) before[EMU_MAX_DEVICES];                                    \
		__builtin_memcpy(before, array, sizeof(before));                                   \
		for (uint32_t i_ = 0; i_ < emulator.n_devices; i_++)                               \
			__builtin_memcpy(&(array)[(to)[i_]], &before[i_], sizeof(before[0]));      \
	} while (0)

static void move_rest(struct process *process, const uint32_t to[EMU_MAX_DEVICES])
{
	for (struct context *c = process->contexts; c; c = c->next)
		c->device = &emulator.devices[to[c->device->index]];
	for (struct pool *p = process->pools; p; p = p->next) {
		p->device = &emulator.devices[to[p->device->index]];
		PERMUTE(p->open_to, to);
	}
	for (struct mapping *m = process->mappings; m; m = m->next)
		PERMUTE(m->access, to);
	PERMUTE(process->graph_memory, to);
	for (uint32_t i = 0; i < process->n_visible; i++)
		process->visible[i] = to[process->visible[i]];
	rm_move(process, to);
}

uint64_t checkpoint_load(struct process *process, const uint32_t to[EMU_MAX_DEVICES])
{
	uint64_t bytes = each_alloc(process, load, (void *)(uintptr_t)to);

	move_rest(process, to);
	return bytes;
}
