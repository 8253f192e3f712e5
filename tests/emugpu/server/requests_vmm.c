/* requests_vmm.c: virtual memory management. The lock is held. */
#include "server/server.h"

static bool create(struct connection *c, const struct emu_request *q)
{
	struct device *device = device_at(c, q->arg[0]);
	struct alloc *alloc = NULL;
	enum emu_status status = device ? device->error : EMU_INVALID;

	if (!status)
		status = alloc_loose(c->process, device, q->arg[1], EMU_PHYSICAL, &alloc);
	if (alloc) {
		alloc->exportable = q->arg[2];
		alloc->open = q->arg[3];
	}
	return reply(c, status, (uint64_t[5]){alloc ? alloc->id : 0});
}

static bool release(struct connection *c, const struct emu_request *q)
{
	bool released = vmm_release(c->process, q->arg[0]);

	process_changed(c->process);
	return reply(c, released ? EMU_OK : EMU_INVALID, NULL);
}

static bool retain(struct connection *c, const struct emu_request *q)
{
	struct range range;

	if (!range_at(c->process, q->arg[0], &range) || range.alloc->kind != EMU_PHYSICAL)
		return reply(c, EMU_INVALID, NULL);
	return reply(c, vmm_hold(c->process, range.alloc) ? EMU_OK : EMU_OOM,
	             (uint64_t[5]){range.alloc->id});
}

static bool unmap(struct connection *c, const struct emu_request *q)
{
	enum emu_status status;

	c->process->watchers++;
	while ((status = vmm_unmap(c->process, q->arg[0], q->arg[1])) == EMU_NOT_READY &&
	       !c->process->dead)
		wait_change(c->process);
	c->process->watchers--;
	process_changed(c->process);
	return reply(c, status, NULL);
}

static bool tell_access(struct connection *c, const struct emu_request *q)
{
	struct range range;
	const struct device *device = device_at(c, q->arg[1]);
	bool mapped = range_at(c->process, q->arg[0], &range) && range.alloc->kind == EMU_PHYSICAL;

	if (!device)
		return reply(c, EMU_INVALID, NULL);
	/* For an address without a mapping a card gives the same answer as for one without
	 * access. */
	return reply(c, EMU_OK,
	             (uint64_t[5]){mapped ? range.mapping->access[device->index] : ACCESS_NONE});
}

static bool protect(struct connection *c, const struct emu_request *q)
{
	uint8_t change[EMU_MAX_DEVICES];

	for (uint32_t i = 0; i < EMU_MAX_DEVICES; i++)
		change[i] = KEEP_ACCESS;
	for (uint32_t i = 0; i < EMU_MAX_DEVICES; i++) {
		const struct device *device = device_at(c, i);

		if (!(q->arg[2] >> i & 1))
			continue;
		if (!device)
			return reply(c, EMU_INVALID, NULL);
		change[device->index] = (uint8_t)(q->arg[3] >> 2 * i & ACCESS_BOTH);
	}
	return reply(c, vmm_protect(c->process, q->arg[0], q->arg[1], change), NULL);
}

/* Requests about a handle. */
static bool with_handle(struct connection *c, const struct emu_request *q, uint64_t id)
{
	struct alloc *alloc =
	    q->op == EMU_VMM_HOLD ? vmm_find_exported(id) : vmm_find(c->process, id);

	if (!alloc)
		return reply(c, EMU_INVALID, NULL);
	if (q->op == EMU_VMM_DEVICE)
		return reply(
		    c, EMU_OK,
		    (uint64_t[5]){ordinal_of(c, alloc->device), alloc->exportable, alloc->open});
	if (q->op == EMU_VMM_HOLD)
		return reply(c, vmm_hold(c->process, alloc) ? EMU_OK : EMU_OOM, NULL);
	return reply(c, vmm_map(c->process, q->arg[0], q->arg[1], alloc, q->arg[3]), NULL);
}

bool serve_vmm(struct connection *c, const struct emu_request *q)
{
	uint64_t address;

	switch (q->op) {
	case EMU_VMM_RESERVE:
		address = vmm_reserve(c->process, q->arg[0], q->arg[1]);
		return reply(c, address ? EMU_OK : EMU_OOM, (uint64_t[5]){address});
	case EMU_VMM_UNRESERVE:
		return reply(c, vmm_unreserve(c->process, q->arg[0], q->arg[1]), NULL);
	case EMU_VMM_CREATE:
		return create(c, q);
	case EMU_VMM_RELEASE:
		return release(c, q);
	case EMU_VMM_RETAIN:
		return retain(c, q);
	case EMU_VMM_DEVICE:
	case EMU_VMM_HOLD:
		return with_handle(c, q, q->arg[0]);
	case EMU_VMM_MAP:
		return with_handle(c, q, q->arg[2]);
	case EMU_VMM_UNMAP:
		return unmap(c, q);
	case EMU_VMM_PROTECT:
		return protect(c, q);
	default: /* EMU_VMM_ACCESS */
		return tell_access(c, q);
	}
}
