/* vmm.c: virtual memory management: reserved addresses, and physical memory mapped there.
 *
 * Physical memory is plain memory without an address. It ends when its last handle
 * is released and its last mapping removed.
 */
#include "engine/engine.h"

#include <stdlib.h>

static bool within(uint64_t base, uint64_t size, uint64_t outer, uint64_t outer_size)
{
	return base >= outer && size <= outer_size && base - outer <= outer_size - size;
}

static bool overlap(const struct mapping *m, uint64_t base, uint64_t size)
{
	return m->base < base + size && base < m->base + m->size;
}

static bool mapped_anywhere(const struct process *process, uint64_t base, uint64_t size)
{
	for (const struct mapping *m = process->mappings; m; m = m->next)
		if (overlap(m, base, size))
			return true;
	return false;
}

uint64_t vmm_reserve(struct process *process, uint64_t size, uint64_t alignment)
{
	struct reservation *r = calloc(1, sizeof(*r));

	if (!r)
		return 0;
	if (size > EMU_LAST_ADDRESS - emulator.next_pointer ||
	    alignment > EMU_LAST_ADDRESS - emulator.next_pointer - size) {
		free(r);
		return 0;
	}
	*r = (struct reservation){process->reservations, take_addresses(size, alignment), size};
	process->reservations = r;
	return r->base;
}

enum emu_status vmm_unreserve(struct process *process, uint64_t base, uint64_t size)
{
	for (struct reservation **at = &process->reservations; *at; at = &(*at)->next) {
		struct reservation *r = *at;

		if (r->base != base || r->size != size)
			continue;
		if (mapped_anywhere(process, base, size))
			return EMU_INVALID;
		*at = r->next;
		free(r);
		return EMU_OK;
	}
	return EMU_INVALID;
}

struct alloc *vmm_find(const struct process *process, uint64_t id)
{
	for (struct alloc *a = process->allocs; a; a = a->next)
		if (a->kind == EMU_PHYSICAL && a->id == id && a->holders)
			return a;
	for (const struct import *i = process->imports; i; i = i->next)
		if (i->alloc->id == id)
			return i->alloc;
	return NULL;
}

/* Memory that a file stands for. */
struct alloc *vmm_find_exported(uint64_t id)
{
	for (const struct export *e = emulator.exports; e; e = e->next)
		if (e->alloc->id == id)
			return e->alloc;
	return NULL;
}

/* One handle more. */
bool vmm_hold(struct process *process, struct alloc *alloc)
{
	struct import *import = process->imports;

	if (alloc->process == process) {
		alloc->holders++;
		return true;
	}
	while (import && import->alloc != alloc)
		import = import->next;
	if (!import) {
		import = calloc(1, sizeof(*import));
		if (!import)
			return false;
		*import = (struct import){.next = process->imports, .alloc = alloc};
		process->imports = import;
		alloc->imports++;
	}
	import->holders++;
	return true;
}

/* Has it no handle and no mapping of its own process any more, or no process? */
static void end_if_unused(struct alloc *alloc)
{
	if (alloc->process && !alloc->holders && !alloc->mappings)
		alloc_free(alloc);
	else
		alloc_settle(alloc);
}

struct export *vmm_export(uint64_t id)
{
	struct export *export = calloc(1, sizeof(*export));

	if (export)
		export->alloc = vmm_find_exported(id);
	for (struct process *p = emulator.processes; p && export; p = p->next) {
		for (struct alloc *a = p->allocs; a && !export->alloc; a = a->next)
			if (a->kind == EMU_PHYSICAL && a->id == id && a->exportable)
				export->alloc = a;
	}
	if (!export || !export->alloc) {
		free(export);
		return NULL;
	}
	export->alloc->imports++;
	export->next = emulator.exports;
	emulator.exports = export;
	return export;
}

void vmm_unexport(struct export *export)
{
	struct export **at = &emulator.exports;

	while (*at != export)
		at = &(*at)->next;
	*at = export->next;
	export->alloc->imports--;
	end_if_unused(export->alloc);
	free(export);
}

static void drop_import(struct process *process, struct import *import)
{
	struct alloc *alloc = import->alloc;

	for (struct import **at = &process->imports; *at; at = &(*at)->next) {
		if (*at == import) {
			*at = import->next;
			break;
		}
	}
	free(import);
	alloc->imports--;
	end_if_unused(alloc);
}

/* Memory whose last handle is gone is found again through its mappings. */
bool vmm_release(struct process *process, uint64_t id)
{
	struct alloc *alloc = vmm_find(process, id);

	if (!alloc)
		return false;
	if (alloc->process == process) {
		alloc->holders--;
		end_if_unused(alloc);
		return true;
	}
	for (struct import *i = process->imports; i; i = i->next) {
		if (i->alloc == alloc) {
			if (!--i->holders)
				drop_import(process, i);
			return true;
		}
	}
	return false;
}

enum emu_status vmm_map(struct process *process, uint64_t base, uint64_t size, struct alloc *alloc,
                        uint64_t offset)
{
	const struct reservation *r = process->reservations;
	struct mapping *mapping;

	while (r && !within(base, size, r->base, r->size))
		r = r->next;
	if (!r || !within(offset, size, 0, alloc->size) || mapped_anywhere(process, base, size))
		return EMU_INVALID;
	mapping = calloc(1, sizeof(*mapping));
	if (!mapping)
		return EMU_OOM;
	*mapping = (struct mapping){.next = process->mappings,
	                            .alloc = alloc,
	                            .base = base,
	                            .size = size,
	                            .offset = offset};
	process->mappings = mapping;
	alloc->mappings++;
	return EMU_OK;
}

/* Does the range consist of whole mappings of physical memory, without gaps? */
static bool whole(const struct process *process, uint64_t base, uint64_t size)
{
	uint64_t covered = 0;

	for (const struct mapping *m = process->mappings; m; m = m->next) {
		if (!overlap(m, base, size))
			continue;
		if (m->alloc->kind != EMU_PHYSICAL || !within(m->base, m->size, base, size))
			return false;
		covered += m->size;
	}
	return covered == size;
}

void mapping_remove(struct process *process, struct mapping *mapping)
{
	struct alloc *alloc = mapping->alloc;

	for (struct mapping **at = &process->mappings; *at; at = &(*at)->next) {
		if (*at == mapping) {
			*at = mapping->next;
			break;
		}
	}
	free(mapping);
	alloc->mappings--;
	if (alloc->kind == EMU_PHYSICAL)
		end_if_unused(alloc);
	else
		alloc_settle(alloc);
}

/* Does a kernel of the process compute on a block of the memory? One of another process has it
 * mapped by that, and goes on. */
static bool computes_on(const struct process *process, const struct alloc *alloc)
{
	for (const struct context *c = process->contexts; c; c = c->next)
		for (const struct stream *s = c->streams; s; s = s->next)
			if (s->first && s->first->pins == alloc)
				return true;
	return false;
}

enum emu_status vmm_unmap(struct process *process, uint64_t base, uint64_t size)
{
	struct mapping *m, *next;

	if (!size || !whole(process, base, size))
		return EMU_INVALID;
	for (m = process->mappings; m; m = m->next)
		if (overlap(m, base, size) && computes_on(process, m->alloc))
			return EMU_NOT_READY;
	for (m = process->mappings; m; m = next) {
		next = m->next;
		if (overlap(m, base, size))
			mapping_remove(process, m);
	}
	return EMU_OK;
}

/* Devices that are not peers do not reach each other's memory. */
static bool possible(const struct device *device, const uint8_t *change)
{
	for (uint32_t i = 0; i < emulator.n_devices; i++)
		if (i != device->index && !device->model->peer && change[i] != KEEP_ACCESS &&
		    change[i])
			return false;
	return true;
}

enum emu_status vmm_protect(struct process *process, uint64_t base, uint64_t size,
                            const uint8_t *change)
{
	if (!size || !whole(process, base, size))
		return EMU_INVALID;
	for (struct mapping *m = process->mappings; m; m = m->next)
		if (overlap(m, base, size) && !possible(m->alloc->device, change))
			return EMU_INVALID;
	for (struct mapping *m = process->mappings; m; m = m->next)
		for (uint32_t i = 0; i < emulator.n_devices && overlap(m, base, size); i++)
			if (change[i] != KEEP_ACCESS)
				m->access[i] = change[i];
	return EMU_OK;
}

void vmm_close(struct process *process)
{
	while (process->mappings)
		mapping_remove(process, process->mappings);
	while (process->imports)
		drop_import(process, process->imports);
	while (process->allocs)
		alloc_free(process->allocs);
	while (process->reservations) {
		struct reservation *r = process->reservations;

		process->reservations = r->next;
		free(r);
	}
}
