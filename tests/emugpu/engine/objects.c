/* objects.c: contexts, streams and events of a process: made, found by id, ended. */
#include "engine/engine.h"

#include <stdlib.h>

struct stream *stream_create(struct context *context, bool non_blocking)
{
	struct stream *stream = calloc(1, sizeof(*stream));
	struct stream **end = &context->streams;

	if (!stream)
		return NULL;
	stream->context = context;
	stream->id = emulator.next_id++;
	stream->non_blocking = non_blocking;
	stream->legacy = !context->streams;
	while (*end)
		end = &(*end)->next;
	*end = stream;
	return stream;
}

void stream_destroy(struct stream *stream)
{
	for (struct stream **at = &stream->context->streams; *at; at = &(*at)->next) {
		if (*at == stream) {
			*at = stream->next;
			channels_forget(stream);
			free(stream);
			return;
		}
	}
}

/* A client of MPS with a part of the multiprocessors divides it no further by green contexts, as
 * NVIDIA says of its driver. */
static double share_of(const struct process *process, const struct device *device,
                       const struct context *whole, uint64_t multiprocessors)
{
	double given = process->mps ? (double)process->percent / 100 : 1;
	double wanted = (double)multiprocessors / device->model->multiprocessors;

	if (!multiprocessors || wanted > given || (whole && given < 1))
		return given;
	return wanted;
}

struct context *context_create(struct process *process, struct device *device, bool primary,
                               struct context *whole, uint64_t multiprocessors,
                               enum emu_status *status)
{
	struct context *context = calloc(1, sizeof(*context));

	*status = device->error ? device->error : EMU_OOM;
	if (!context || device->error) {
		free(context);
		return NULL;
	}
	context->process = process;
	context->device = device;
	context->primary = primary;
	context->whole = whole;
	context->part = share_of(process, device, whole, multiprocessors);
	context->error = whole ? whole->error : EMU_OK;
	context->id = emulator.next_id++;
	groups_create(context);
	context->next = process->contexts;
	process->contexts = context;
	*status = whole ? EMU_OK
	                : alloc_create(context, device->model->context_bytes, EMU_PLAIN,
	                               &context->overhead);
	if (*status || !stream_create(context, false)) {
		context_destroy(context);
		return NULL;
	}
	return context;
}

static void drop_ops(struct stream *stream)
{
	while (stream->first) {
		struct op *op = stream->first;

		stream->first = op->next;
		channel_leave(op);
		if (op->event && op->kind == EMU_RECORD)
			event_reached(op->event, op->generation);
		if (op->event)
			op->event->waiting--;
		if (op->finished)
			*op->finished = true;
		if (op->kind != EMU_READ)
			free(op->data);
		free(op->fingerprint);
		free(op);
	}
	stream->last = NULL;
	stream->length = 0;
}

/* An event outlives its context while streams of other contexts wait for it. These waits end
 * now. */
static void orphan(struct event *event)
{
	event->context = NULL;
	event->destroyed = true;
	event->completed = UINT64_MAX;
	event_release(event);
}

/* Is it the context itself, or one of its green contexts? */
bool context_includes(const struct context *context, const struct context *other)
{
	return other == context || other->whole == context;
}

void context_fail(struct context *context, enum emu_status status)
{
	if (!context->error)
		context->error = status;
	engines_look(context->device);
}

static struct context *part_of(const struct context *context)
{
	for (struct context *c = context->process->contexts; c; c = c->next)
		if (c->whole == context)
			return c;
	return NULL;
}

/* Waits until no engine uses it, then frees everything that it has. */
void context_destroy(struct context *context)
{
	while (part_of(context))
		context_destroy(part_of(context));
	context_fail(context, EMU_INVALID);
	while (context->running)
		wait_change(context->process);
	for (struct stream *s = context->streams; s; s = s->next)
		drop_ops(s);
	while (context->streams)
		stream_destroy(context->streams);
	while (context->events) {
		struct event *event = context->events;

		context->events = event->next;
		orphan(event);
	}
	ipc_leave(context);
	peer_leave(context);
	while (context->allocs)
		alloc_free(context->allocs);
	if (context->primary) {
		pools_close(context->process, context->device);
		graphs_close(context->process, context->device);
	}
	for (struct context **at = &context->process->contexts; *at; at = &(*at)->next) {
		if (*at == context) {
			*at = context->next;
			break;
		}
	}
	free(context);
	changed();
}

struct context *context_find(struct process *process, uint64_t id)
{
	for (struct context *c = process->contexts; c; c = c->next)
		if (c->id == id)
			return c;
	return NULL;
}

struct stream *stream_find(struct process *process, uint64_t id)
{
	for (struct context *c = process->contexts; c; c = c->next)
		for (struct stream *s = c->streams; s; s = s->next)
			/* A context's id stands for its legacy default stream. */
			if (s->id == id || (s->legacy && c->id == id))
				return s;
	return NULL;
}

struct event *event_find(struct process *process, uint64_t id)
{
	for (struct context *c = process->contexts; c; c = c->next)
		for (struct event *e = c->events; e; e = e->next)
			if (e->id == id && !e->destroyed)
				return e;
	return NULL;
}

struct event *event_create(struct context *context)
{
	struct event *event = calloc(1, sizeof(*event));

	if (!event)
		return NULL;
	*event =
	    (struct event){.next = context->events, .context = context, .id = emulator.next_id++};
	context->events = event;
	return event;
}

void event_reached(struct event *event, uint64_t generation)
{
	if (generation > event->completed)
		event->completed = generation;
	event->time_ns = now_ns();
}

/* Free a destroyed event once no operation points at it. */
void event_release(struct event *event)
{
	if (!event->destroyed || event->waiting)
		return;
	for (struct event **at = event->context ? &event->context->events : NULL; at && *at;
	     at = &(*at)->next) {
		if (*at == event) {
			*at = event->next;
			break;
		}
	}
	free(event);
}
