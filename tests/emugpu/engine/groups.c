/* groups.c: channel groups. A context has four, one for each engine, and a group has channels. A
 * stream's work for an engine waits in one of them, which is chosen at its first operation. The
 * compute groups of a device take turns by slices, which exec.c divides. */
#include "engine/engine.h"

void groups_create(struct context *context)
{
	const struct device *device = context->device;
	uint32_t compute = device->controls.channels ? device->controls.channels : COMPUTE_CHANNELS;

	for (int i = 0; i < N_GROUPS; i++) {
		struct group *group = &context->groups[i];

		group->number = emulator.next_id++;
		group->slice_us = i == ENGINE_COMPUTE ? SLICE_US : COPY_SLICE_US;
		group->n_channels = i == ENGINE_COMPUTE ? compute : COPY_CHANNELS;
	}
}

uint64_t card_ns(const struct model *model, uint64_t us)
{
	return (uint64_t)((double)us * (double)model->slice_ns / SLICE_US);
}

uint64_t group_slice_ns(const struct context *context)
{
	return card_ns(context->device->model, context->groups[ENGINE_COMPUTE].slice_us);
}

/* A stop lasts no longer than the process. */
static bool on(const struct channel *channel, const struct context *context)
{
	return !channel->stopped || context->error || context->process->dead;
}

bool channel_on(const struct op *op)
{
	return !op->channel || on(op->channel, op->stream->context);
}

bool channel_ready(const struct op *op)
{
	return channel_on(op) && (!op->channel || op->channel->first == op);
}

/* A stream sets its marks in the channel of its latest operation, or else in one of compute. */
bool stream_on(const struct stream *stream)
{
	const struct context *context = stream->context;

	return on(stream->latest ? stream->latest : &context->groups[ENGINE_COMPUTE].channels[0],
	          context);
}

/* The channel with the least work in it, and of those the one that the fewest streams use. */
static struct channel *emptiest(struct group *group)
{
	struct channel *best = &group->channels[0];

	for (uint32_t i = 1; i < group->n_channels; i++) {
		struct channel *c = &group->channels[i];

		if (c->length < best->length ||
		    (c->length == best->length && c->streams < best->streams))
			best = c;
	}
	return best;
}

void channel_enter(struct op *op)
{
	enum engine_kind kind = op_engine(op);
	struct stream *stream = op->stream;
	struct channel *channel;

	/* Pages are moved by channels of the kernel's own. */
	if (kind >= ENGINE_HOST || op->kind == EMU_PREFETCH)
		return;
	if (!stream->channels[kind]) {
		stream->channels[kind] = emptiest(&stream->context->groups[kind]);
		stream->channels[kind]->streams++;
	}
	channel = stream->latest = op->channel = stream->channels[kind];
	if (channel->last)
		channel->last->behind = op;
	else
		channel->first = op;
	channel->last = op;
	channel->length++;
}

void channel_leave(const struct op *op)
{
	struct channel *channel = op->channel;
	struct op *before = NULL;

	if (!channel)
		return;
	for (struct op *o = channel->first; o != op; o = o->behind)
		before = o;
	if (before)
		before->behind = op->behind;
	else
		channel->first = op->behind;
	if (channel->last == op)
		channel->last = before;
	channel->length--;
}

void channels_forget(const struct stream *stream)
{
	for (int i = 0; i < ENGINE_HOST; i++)
		if (stream->channels[i])
			stream->channels[i]->streams--;
}

void engines_look(struct device *device)
{
	for (int i = 0; i < N_ENGINES + MORE_HOST_ENGINES; i++)
		if (device->engines[i].op)
			pthread_cond_signal(&device->engines[i].work);
}

void slice_end(struct context *context)
{
	struct engine *engine = &context->device->engines[ENGINE_COMPUTE];

	if (engine->last_id == context->id)
		engine->slice_left = 0;
	engines_look(context->device);
}
