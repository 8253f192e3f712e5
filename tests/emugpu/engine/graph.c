/* graph.c: memory that graphs allocate.
 *
 * Its address is there from the capture on. A launch gives it blocks, plain memory
 * that the process keeps for its graphs until it is trimmed or another graph's
 * launch needs it.
 */
#include "engine/engine.h"

static uint64_t *values(const struct alloc *alloc)
{
	return alloc->process->graph_memory[alloc->device->index];
}

static void add(struct alloc *alloc, enum emu_graph_value value, uint64_t bytes)
{
	uint64_t *v = values(alloc);

	v[value] += bytes;
	if (v[value + 1] < v[value])
		v[value + 1] = v[value];
}

static uint64_t reserved_by(const struct alloc *alloc)
{
	return alloc->n_blocks * alloc->device->model->block;
}

enum emu_status graph_reserve(struct process *process, struct device *device, uint64_t size,
                              struct alloc **out)
{
	enum emu_status status = alloc_loose(process, device, size, EMU_GRAPH, out);

	if (!status)
		(*out)->base = take_addresses(size, 0);
	return status;
}

static void unback(struct alloc *alloc)
{
	if (!alloc->graph.backed)
		return;
	values(alloc)[EMU_GRAPH_RESERVED] -= reserved_by(alloc);
	alloc->graph.backed = false;
	alloc_unback(alloc);
}

/* Is it unused, now and by everything that was submitted? */
static bool unused(const struct alloc *alloc)
{
	return !alloc->graph.live && !alloc->graph.scheduled && !alloc_pinned(alloc);
}

/* Memory that no graph uses any more serves the next one. */
static void reuse(struct process *process, const struct device *device)
{
	struct alloc *next;

	for (struct alloc *a = process->allocs; a; a = next) {
		next = a->next;
		if (a->kind == EMU_GRAPH && a->device == device && a->graph.dropped && unused(a))
			alloc_free(a);
	}
}

enum emu_status graph_back(struct alloc *alloc, enum emu_backing what_for)
{
	if (what_for == EMU_FOR_UNFREED && alloc->graph.unfreed)
		return EMU_INVALID;
	if (!alloc->graph.backed) {
		reuse(alloc->process, alloc->device);
		if (alloc_back(alloc) != EMU_OK)
			return EMU_OOM;
		alloc->graph.backed = true;
		add(alloc, EMU_GRAPH_RESERVED, reserved_by(alloc));
	}
	if (what_for != EMU_FOR_UPLOAD)
		alloc->graph.scheduled++;
	if (what_for == EMU_FOR_UNFREED)
		alloc->graph.unfreed = true;
	return EMU_OK;
}

void graph_cancel(struct alloc *alloc)
{
	alloc->graph.scheduled -= alloc->graph.scheduled > 0;
	alloc->graph.unfreed = false;
}

void graph_allocated(struct alloc *alloc)
{
	alloc->graph.scheduled -= alloc->graph.scheduled > 0;
	if (!alloc->graph.live)
		add(alloc, EMU_GRAPH_USED, alloc->size);
	alloc->graph.live = true;
}

void graph_freed(struct alloc *alloc)
{
	if (alloc->graph.live)
		values(alloc)[EMU_GRAPH_USED] -= alloc->size;
	alloc->graph.live = false;
	alloc->idle = alloc->graph.dropped;
}

/* Memory that a launch has left allocated stays until it is freed. */
void graph_drop(struct alloc *alloc)
{
	alloc->graph.dropped = true;
	alloc->idle = unused(alloc);
	if (!alloc->graph.backed && unused(alloc))
		alloc_free(alloc);
}

void graph_forget(struct alloc *alloc)
{
	if (alloc->graph.live)
		values(alloc)[EMU_GRAPH_USED] -= alloc->size;
	alloc->graph.live = false;
	unback(alloc);
}

void graph_trim(struct process *process, const struct device *device)
{
	reuse(process, device);
	for (struct alloc *a = process->allocs; a; a = a->next)
		if (a->kind == EMU_GRAPH && a->device == device && unused(a))
			unback(a);
}

void graphs_close(struct process *process, const struct device *device)
{
	struct alloc *next;

	for (struct alloc *a = process->allocs; a; a = next) {
		next = a->next;
		if (a->kind == EMU_GRAPH && (!device || a->device == device))
			alloc_free(a);
	}
}
