/* requests_rm.c: the kernel module of a card, as far as channel groups need it: the objects of a
 * process, and the controls of its groups. Each call of ioctl is one request. */
#include "rm.h"
#include "server/server.h"

#include <stdlib.h>
#include <string.h>

#define STOP_US 500 /* what a stop takes on a card */
#define START_US 350
#define CALL_MOST 4096 /* bytes of a call and its parameters */

/* Contexts are looked up by their number each time, since they may have ended. */
struct rm_object {
	struct rm_object *next;
	uint32_t root, parent, handle, class;
	struct device *device;
	uint64_t context;        /* of a group or a channel */
	unsigned group, channel; /* their places in it */
};

static struct rm_object *find(const struct process *process, uint32_t root, uint32_t handle)
{
	for (struct rm_object *o = process->objects; o; o = o->next)
		if (o->root == root && o->handle == handle)
			return o;
	return NULL;
}

static struct rm_object *find_of(const struct process *process, uint32_t root, uint32_t handle,
                                 uint32_t class)
{
	struct rm_object *o = find(process, root, handle);

	return o && o->class == class ? o : NULL;
}

static struct group *group_of(struct process *process, const struct rm_object *object)
{
	struct context *context = context_find(process, object->context);

	return context ? &context->groups[object->group] : NULL;
}

static struct channel *channel_of(struct process *process, uint32_t root, uint32_t handle)
{
	const struct rm_object *o = find_of(process, root, handle, RM_CHANNEL);
	struct group *group = o ? group_of(process, o) : NULL;

	return group ? &group->channels[o->channel] : NULL;
}

/* -- objects ---------------------------------------------------------------------------- */

static enum rm_status make_device(const struct connection *c, struct rm_object *new,
                                  const struct rm_object *parent, const void *parms, uint32_t size)
{
	const struct rm_device *wish = parms;

	if (parent->class != RM_CLIENT || size < sizeof(*wish))
		return RM_INVALID;
	new->device = device_at(c, wish->device);
	return new->device ? RM_OK : RM_INVALID;
}

static enum rm_status make_group(struct process *process, struct rm_object *new,
                                 const struct rm_object *parent, const void *parms, uint32_t size)
{
	static const uint32_t engines[N_GROUPS] = {[ENGINE_COMPUTE] = RM_ENGINE_COMPUTE,
	                                           [ENGINE_IN] = RM_ENGINE_IN,
	                                           [ENGINE_OUT] = RM_ENGINE_OUT,
	                                           [ENGINE_OUT + 1] = RM_ENGINE_SPARE};
	const struct rm_group *wish = parms;
	const struct context *context;

	if (parent->class != RM_DEVICE || size < sizeof(*wish))
		return RM_INVALID;
	context = context_find(process, wish->space);
	if (!context || context->device != parent->device)
		return RM_NOT_FOUND;
	for (unsigned i = 0; i < N_GROUPS; i++) {
		if (engines[i] == wish->engine) {
			new->context = wish->space;
			new->group = i;
			group_of(process, new)->slice_us =
			    i == ENGINE_COMPUTE ? SLICE_US : COPY_SLICE_US;
			return RM_OK;
		}
	}
	return RM_INVALID;
}

static enum rm_status make_channel(struct process *process, struct rm_object *new,
                                   const struct rm_object *parent)
{
	const struct group *group = parent->class == RM_GROUP ? group_of(process, parent) : NULL;

	if (!group)
		return RM_INVALID;
	new->context = parent->context;
	new->group = parent->group;
	for (const struct rm_object *o = process->objects; o; o = o->next)
		new->channel += o->root == new->root && o->parent == parent->handle;
	return new->channel < group->n_channels ? RM_OK : RM_NO_RESOURCES;
}

static enum rm_status make(const struct connection *c, struct rm_object *new, const void *parms,
                           uint32_t size)
{
	const struct rm_object *parent = find(c->process, new->root, new->parent);

	if (new->class == RM_CLIENT) {
		new->root = new->parent = new->handle =
		    UINT32_C(0xc1d00000) + (uint32_t)emulator.next_id++;
		return RM_OK;
	}
	if (!parent || !find(c->process, new->root, new->root))
		return RM_NOT_FOUND;
	if (!new->handle || find(c->process, new->root, new->handle))
		return new->handle ? RM_DUPLICATE : RM_INVALID;
	new->device = parent->device;
	switch (new->class) {
	case RM_DEVICE:
		return make_device(c, new, parent, parms, size);
	case RM_SUBDEVICE:
		return parent->class == RM_DEVICE ? RM_OK : RM_INVALID;
	case RM_GROUP:
		return make_group(c->process, new, parent, parms, size);
	case RM_CHANNEL:
		return make_channel(c->process, new, parent);
	default:
		return RM_NO_CLASS;
	}
}

static enum rm_status allocate(const struct connection *c, struct rm_alloc *a, const void *parms,
                               uint32_t size)
{
	struct rm_object *new = calloc(1, sizeof(*new));
	enum rm_status status;

	if (!new)
		abort();
	*new = (struct rm_object){
	    .root = a->root, .parent = a->parent, .handle = a->object, .class = a->class};
	status = make(c, new, parms, size);
	if (status) {
		free(new);
		return status;
	}
	a->root = new->root;
	a->object = new->handle;
	new->next = c->process->objects;
	c->process->objects = new;
	return RM_OK;
}

/* With what hangs below it. */
static void drop(struct process *process, uint32_t root, uint32_t handle)
{
	struct rm_object **at = &process->objects;

	while (*at) {
		struct rm_object *o = *at;

		if (o->root == root && o->handle == handle) {
			*at = o->next;
			free(o);
		} else if (o->root == root && o->parent == handle) {
			drop(process, root, o->handle);
			at = &process->objects;
		} else {
			at = &o->next;
		}
	}
}

void rm_move(struct process *process, const uint32_t to[EMU_MAX_DEVICES])
{
	for (struct rm_object *o = process->objects; o; o = o->next)
		if (o->device)
			o->device = &emulator.devices[to[o->device->index]];
}

void rm_close(struct process *process)
{
	while (process->objects) {
		struct rm_object *o = process->objects;

		process->objects = o->next;
		free(o);
	}
}

/* -- controls --------------------------------------------------------------------------- */

/* A fault that is to happen once. */
static bool fails(struct device *device)
{
	bool once = device->controls.once;

	device->controls.once = false;
	return once;
}

static enum rm_status set_slice(const struct rm_object *object, struct group *group, uint64_t us)
{
	uint64_t own = object->group == ENGINE_COMPUTE ? object->device->controls.slice_us : 0;

	if (fails(object->device))
		return RM_TIMEOUT;
	if (!us)
		return RM_NOT_SUPPORTED; /* shorter than what the hardware has */
	group->slice_us = own ? own : us;
	return RM_OK;
}

static enum rm_status control_group(struct process *process, const struct rm_object *object,
                                    uint32_t cmd, void *params, uint32_t size)
{
	struct group *group = group_of(process, object);
	uint32_t number;

	if (!group)
		return RM_NOT_FOUND;
	switch (cmd) {
	case RM_GROUP_SCHEDULE: /* to disable does nothing, on a card too */
		return size >= 1 ? RM_OK : RM_INVALID;
	case RM_GROUP_SET_SLICE:
		return size == 8 ? set_slice(object, group, *(uint64_t *)params) : RM_INVALID;
	case RM_GROUP_GET_SLICE:
		if (size == 8)
			memcpy(params, &group->slice_us, 8);
		return size == 8 ? RM_OK : RM_INVALID;
	case RM_GROUP_PREEMPT:
		if (object->group == ENGINE_COMPUTE)
			slice_end(context_find(process, object->context));
		return size == 8 ? RM_OK : RM_INVALID;
	case RM_GROUP_NUMBER:
		number = (uint32_t)group->number;
		if (size == 4)
			memcpy(params, &number, 4);
		return size == 4 ? RM_OK : RM_INVALID;
	case RM_GROUP_INTERLEAVE:
		return RM_NOT_PERMITTED;
	default:
		return RM_NOT_SUPPORTED;
	}
}

/* Sets the listed channels on or off. Contexts may end meanwhile; returns whether an engine still
 * works in one of the channels. */
static bool turn(struct process *process, const struct rm_disable *d, bool set)
{
	bool busy = false;

	for (uint32_t i = 0; i < d->n; i++) {
		struct channel *channel = channel_of(process, d->clients[i], d->channels[i]);

		if (channel && set)
			channel->stopped = d->disable;
		busy |= channel && channel->busy;
	}
	return busy;
}

static enum rm_status disable(struct process *process, struct device *device,
                              const struct rm_disable *d)
{
	if (d->n > RM_LISTED || d->rewind)
		return RM_INVALID;
	if (d->event)
		return RM_NOT_PERMITTED; /* the kernel's own clients may */
	for (uint32_t i = 0; i < d->n; i++) {
		const struct rm_object *o =
		    find_of(process, d->clients[i], d->channels[i], RM_CHANNEL);

		if (!o || !group_of(process, o))
			return RM_NOT_FOUND;
		if (o->device != device)
			return RM_INVALID;
	}
	if (fails(device))
		return RM_TIMEOUT;
	while (d->disable && device->controls.stop_hangs && !process->dead)
		wait_change(process);
	(void)turn(process, d, true);
	process_changed(process);
	while (d->disable && !d->only_scheduling && turn(process, d, false) && !process->dead)
		wait_change(process);
	take_time(card_ns(device->model, d->disable ? STOP_US : START_US));
	return RM_OK;
}

static enum rm_status control_subdevice(struct process *process, struct device *device,
                                        uint32_t cmd, void *params, uint32_t size)
{
	struct rm_gid *gid = params;

	switch (cmd) {
	case RM_DISABLE_CHANNELS:
		return size == sizeof(struct rm_disable) ? disable(process, device, params)
		                                         : RM_INVALID;
	case RM_GET_GID:
		if (size != sizeof(*gid) || gid->index || gid->flags != RM_GID_BINARY)
			return RM_INVALID;
		gid->length = sizeof(device->info.uuid_bytes);
		memcpy(gid->data, device->info.uuid_bytes, gid->length);
		return RM_OK;
	default:
		return RM_NOT_SUPPORTED;
	}
}

static enum rm_status control(struct process *process, const struct rm_control *call, void *params)
{
	const struct rm_object *object = find(process, call->client, call->object);

	if (!object)
		return RM_NOT_FOUND;
	if (object->device && object->device->controls.unknown)
		return RM_NOT_SUPPORTED;
	if (object->class == RM_GROUP)
		return control_group(process, object, call->cmd, params, call->size);
	if (object->class == RM_SUBDEVICE)
		return control_subdevice(process, object->device, call->cmd, params, call->size);
	return RM_NOT_SUPPORTED;
}

bool serve_rm(struct connection *c, const struct emu_request *q, const uint8_t *payload)
{
	uint32_t head = rm_call_size(q->arg[0]), more;
	uint64_t aligned[CALL_MOST / 8] = {0};
	void *call = aligned, *params = (uint8_t *)aligned + head;
	struct process *process = c->process;

	if (!head || q->payload < head || q->payload > sizeof(aligned))
		return reply(c, EMU_INVALID, NULL);
	memcpy(aligned, payload, q->payload);
	more = (uint32_t)q->payload - head;
	if (q->arg[0] == RM_ALLOC) {
		struct rm_alloc *a = call;

		a->status = allocate(c, a, params, more);
	} else if (q->arg[0] == RM_CONTROL) {
		struct rm_control *a = call;

		a->status = a->size == more ? control(process, a, params) : RM_INVALID;
	} else {
		struct rm_free *a = call;

		a->status = find(process, a->root, a->object) ? RM_OK : RM_NOT_FOUND;
		drop(process, a->root, a->object);
	}
	return send_reply(c->fd, EMU_OK, NULL, aligned, q->payload);
}
