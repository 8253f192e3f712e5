/* exec.c: streams of operations, their order, and the engines that take them in slices. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* A shorter sleep is not worth a system call: the time is added up and slept off later. */
#define SLEEP_FROM_NS UINT64_C(100000)
#define CATCH_UP_NS UINT64_C(5000000)
#define KERNEL_SLICES 8

struct emulator emulator = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .next_id = 1,
    .next_pointer = EMU_FIRST_ADDRESS,
    .trace = -1,
};

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

enum engine_kind op_engine(const struct op *op)
{
	switch (op->kind) {
	case EMU_LAUNCH:
	case EMU_SET:
	case EMU_COPY:
		return ENGINE_COMPUTE;
	case EMU_WRITE:
	case EMU_WRITE_FROM:
		return ENGINE_IN;
	case EMU_READ:
	case EMU_READ_TO:
		return ENGINE_OUT;
	case EMU_PREFETCH:
		return op->arg[3] ? ENGINE_IN : ENGINE_OUT;
	case EMU_HOST_FUNC:
		return ENGINE_HOST;
	default:
		return N_ENGINES; /* takes no time: settled by advance() */
	}
}

static bool older(const struct stream *stream, uint64_t seq)
{
	return stream->first && stream->first->seq < seq;
}

/* Is there an older operation in the context or in its green contexts? */
static bool unfinished(const struct context *context, const struct op *op)
{
	for (const struct context *c = context->process->contexts; c; c = c->next)
		if (context_includes(context, c))
			for (const struct stream *s = c->streams; s; s = s->next)
				if (s != op->stream && older(s, op->seq))
					return true;
	return false;
}

/* The order that CUDA promises beyond that of one stream: the legacy stream
 * waits for all blocking ones and they for it; a record of a whole context
 * waits for every stream. */
static bool blocked(const struct op *op)
{
	const struct context *context = op->stream->context;

	if (op->kind == EMU_RECORD && op->arg[2] && unfinished(context, op))
		return true;
	for (const struct stream *s = context->streams; s; s = s->next) {
		if (s == op->stream || !older(s, op->seq))
			continue;
		if (!s->non_blocking && !op->stream->non_blocking &&
		    (s->legacy || op->stream->legacy))
			return true;
	}
	if (op->kind == EMU_WAIT_VALUE)
		return value_waits(op);
	return op->kind == EMU_WAIT && op->event->completed < op->generation;
}

static void op_end(struct op *op)
{
	struct stream *stream = op->stream;

	stream->first = op->next;
	if (!stream->first)
		stream->last = NULL;
	stream->length--;
	channel_leave(op);
	stream->context->process->stirred = true;
	if (op->event) {
		if (op->kind == EMU_RECORD)
			event_reached(op->event, op->generation);
		op->event->waiting--;
		event_release(op->event);
	}
	if (op->finished)
		*op->finished = true;
	if (op->kind != EMU_READ)
		free(op->data);
	free(op->fingerprint);
	free(op);
}

/* Finishes the first operation of a stream if it takes no time and need not wait. */
static bool settle(struct stream *stream)
{
	struct op *op = stream->first;
	struct alloc *alloc;

	if (!op || op->running || op_engine(op) != N_ENGINES)
		return false;
	if (!stream->context->error &&
	    (blocked(op) ||
	     ((op->kind == EMU_RECORD || op->kind == EMU_WRITE_VALUE) && !stream_on(stream))))
		return false;
	if (op->kind == EMU_FREE_ORDERED) {
		alloc = alloc_find(stream->context->process, op->arg[1]);
		if (alloc && alloc_pinned(alloc))
			return false;
		if (alloc && alloc->kind == EMU_GRAPH)
			graph_freed(alloc);
		else if (alloc && alloc->pool)
			pool_free(alloc);
		else if (alloc)
			alloc_free(alloc);
	}
	if (op->kind == EMU_GRAPH_ALLOC) {
		alloc = alloc_find(stream->context->process, op->arg[1]);
		if (alloc && alloc->kind == EMU_GRAPH)
			graph_allocated(alloc);
	}
	if (op->kind == EMU_WRITE_VALUE && !stream->context->error)
		value_write(op);
	op_end(op);
	return true;
}

void wait_change(struct process *process)
{
	pthread_cond_wait(&process->changed, &emulator.lock);
}

/* An engine that lets time pass for an operation need not look up because of another one, except
 * that its slice may have to end for it. */
static bool concerns(const struct engine *engine, const struct context *context)
{
	return !engine->op || (engine->kind == ENGINE_COMPUTE && !engine->contended &&
	                       engine->op->stream->context != context);
}

static void wake(const struct context *context, enum engine_kind kind)
{
	struct device *device = context->device;

	for (int i = 0; i < N_ENGINES + MORE_HOST_ENGINES; i++)
		if (device->engines[i].kind == kind && concerns(&device->engines[i], context))
			pthread_cond_signal(&device->engines[i].work);
}

/* Could an engine begin the stream's first operation now? */
static bool may_begin(const struct stream *stream)
{
	const struct op *op = stream->first;

	return op && !op->running && op_engine(op) != N_ENGINES && channel_ready(op) &&
	       !blocked(op);
}

/* Wakes only those whom it concerns, since there may be many processes and devices. */
static void tell(void)
{
	for (struct process *p = emulator.processes; p; p = p->next) {
		if (p->stirred)
			pthread_cond_broadcast(&p->changed);
		p->stirred = false;
		for (struct context *c = p->contexts; c; c = c->next)
			for (struct stream *s = c->streams; s; s = s->next)
				if (may_begin(s))
					wake(c, op_engine(s->first));
	}
}

/* After any change: finishes all operations that take no time, in all contexts, since events
 * connect them. */
static void advance(void)
{
	bool again = true;

	while (again) {
		again = false;
		for (struct process *p = emulator.processes; p; p = p->next)
			for (struct context *c = p->contexts; c; c = c->next)
				for (struct stream *s = c->streams; s; s = s->next)
					while (settle(s))
						again = true;
	}
	tell();
}

void changed(void)
{
	advance(); /* events, too, wait for channels that were stopped */
	for (struct process *p = emulator.processes; p; p = p->next) {
		pthread_cond_broadcast(&p->changed);
		pthread_cond_broadcast(&p->ends);
	}
	for (uint32_t i = 0; i < emulator.n_devices; i++)
		engines_look(&emulator.devices[i]);
}

void process_changed(struct process *process)
{
	process->stirred = true;
	advance();
	for (const struct context *c = process->contexts; c; c = c->next)
		engines_look(c->device);
}

void op_submit(struct stream *stream, struct op *op)
{
	op->stream = stream;
	op->seq = stream->context->last_seq = ++emulator.next_seq;
	if (stream->last)
		stream->last->next = op;
	else
		stream->first = op;
	stream->last = op;
	stream->length++;
	channel_enter(op);
	advance();
}

bool stream_idle(const struct stream *stream, uint64_t seq)
{
	return !stream->first || stream->first->seq > seq;
}

bool context_idle(const struct context *context, uint64_t seq)
{
	for (const struct stream *s = context->streams; s; s = s->next)
		if (!stream_idle(s, seq))
			return false;
	return true;
}

bool process_idle(const struct process *process, uint64_t seq)
{
	for (const struct context *c = process->contexts; c; c = c->next)
		if (!context_idle(c, seq))
			return false;
	return true;
}

/* The oldest operation of a context that this kind of engine could start now. */
static struct op *ready_op(const struct context *context, enum engine_kind kind)
{
	struct op *best = NULL;

	if (kind == ENGINE_COMPUTE && !context->error && context->rests_until > now_ns())
		return NULL;
	for (struct stream *s = context->streams; s; s = s->next) {
		struct op *op = s->first;

		if (op && !op->running && op_engine(op) == kind && (!best || op->seq < best->seq) &&
		    channel_ready(op) && !blocked(op))
			best = op;
	}
	return best;
}

/* A client of MPS that may use a part of the multiprocessors has them while others have the rest:
 * after its work has had the whole device for `ns` it rests for the others' part. */
static void rest(struct engine *engine, struct context *context, uint64_t ns)
{
	if (engine->kind == ENGINE_COMPUTE && context->process->mps && context->part < 1)
		context->rests_until =
		    engine->until + (uint64_t)((double)ns * (1 - context->part) / context->part);
}

/* How long an operation has the whole device that takes `ns` with all multiprocessors. With a part
 * of them it is as fast as the part is of the knee. Under MPS others have the rest meanwhile; else
 * nobody has. */
static uint64_t with_part(const struct op *op, uint64_t ns)
{
	const struct context *context = op->stream->context;
	bool streams = op->kind != EMU_LAUNCH || op->arg[1] != EMU_SPIN;
	double knee = streams ? context->device->model->sm_knee : 1;
	double speed = context->part < knee ? context->part / knee : 1;

	return (uint64_t)((double)ns * (context->process->mps ? context->part : 1) / speed);
}

/* Waits until there may be work again: somebody says so, or a context has rested that did so when
 * the engine began to look for work. */
static void wait_for_work(struct engine *engine, uint64_t looked)
{
	uint64_t due = UINT64_MAX;
	struct timespec t;

	for (struct process *p = emulator.processes; p; p = p->next)
		for (struct context *c = p->contexts; c; c = c->next)
			if (engine->kind == ENGINE_COMPUTE && c->device == engine->device &&
			    c->rests_until > looked && c->rests_until < due)
				due = c->rests_until;
	if (due == UINT64_MAX) {
		pthread_cond_wait(&engine->work, &emulator.lock);
		return;
	}
	t.tv_sec = (time_t)(due / UINT64_C(1000000000));
	t.tv_nsec = (long)(due % UINT64_C(1000000000));
	pthread_cond_timedwait(&engine->work, &emulator.lock, &t);
}

/* Contexts take turns: the next one is the ready context whose id follows that of the last. */
static struct op *pick(struct engine *engine)
{
	struct op *after = NULL, *lowest = NULL;

	for (struct process *p = emulator.processes; p; p = p->next) {
		if (engine->kind == ENGINE_HOST && p->in_host_function)
			continue;
		for (struct context *c = p->contexts; c; c = c->next) {
			struct op *op =
			    c->device == engine->device ? ready_op(c, engine->kind) : NULL;

			if (!op)
				continue;
			if (c->id > engine->last_id &&
			    (!after || c->id < after->stream->context->id))
				after = op;
			if (!lowest || c->id < lowest->stream->context->id)
				lowest = op;
		}
	}
	return after ? after : lowest;
}

/* Does another group have work for the engine? */
static bool contended(struct engine *engine)
{
	const struct op *op = engine->kind == ENGINE_COMPUTE ? pick(engine) : NULL;

	return op && op->stream->context->id != engine->last_id;
}

/* The operation of which the engine computes next: of the group that it served last until its slice
 * is used up, if that has work and others have some too. */
static struct op *next_op(struct engine *engine)
{
	struct op *other = pick(engine);

	if (engine->kind != ENGINE_COMPUTE || !engine->slice_left || !other)
		return other;
	for (struct process *p = emulator.processes; p; p = p->next)
		for (struct context *c = p->contexts; c; c = c->next)
			if (c->id == engine->last_id && ready_op(c, ENGINE_COMPUTE))
				return ready_op(c, ENGINE_COMPUTE);
	return other;
}

static bool over(const struct op *op)
{
	return op->stream->context->error || op->stream->context->process->dead;
}

/* Keeps the engine busy for `lost` and `ns` of its simulated clock; for less if the operation's
 * channel is stopped, or if another group has work and the slice is used up. last: this is all that
 * the operation takes. Returns how much of `ns` has passed. */
static uint64_t spend(struct engine *engine, struct op *op, uint64_t lost, uint64_t ns, bool last)
{
	uint64_t from = engine->until + lost, end = from + ns, seen = from, due;
	struct timespec t;

	engine->op = op;
	for (;;) {
		engine->contended = contended(engine);
		due = !channel_on(op) || over(op) ? 0
		      : engine->contended         ? from + engine->slice_left
		                                  : end;
		/* It has run until that was seen. */
		due = due > seen ? due : seen;
		end = end < due ? end : due;
		seen = now_ns();
		if (end <= seen || (!last && end - seen < SLEEP_FROM_NS))
			break;
		t.tv_sec = (time_t)(end / UINT64_C(1000000000));
		t.tv_nsec = (long)(end % UINT64_C(1000000000));
		pthread_cond_timedwait(&engine->work, &emulator.lock, &t);
		seen = now_ns();
	}
	engine->op = NULL;
	engine->until = end > from ? end : from;
	return engine->until - from;
}

static void trace(const struct context *context, uint64_t start, uint64_t end)
{
	if (emulator.trace >= 0)
		dprintf(emulator.trace, "%u %u %llu %llu\n", context->device->index,
		        context->process->pid, (unsigned long long)start, (unsigned long long)end);
}

/* Sends the bytes that this slice has read. */
static void deliver(struct op *op)
{
	uint64_t from = op->delivered;
	enum emu_status status;

	op->delivered = op->window = op->done;
	if (op->done <= from || op->stream->context->error)
		return;
	status = host_deliver(op->stream->context->process, op->arg[4] + from, op->data,
	                      op->done - from);
	if (status)
		op_fail(op, status);
}

/* Gets the bytes that the next slice writes: about as many as the link takes in that time. */
static void fetch(struct op *op)
{
	uint64_t n = window_size(op);
	enum emu_status status;

	if (n > op->arg[2] - op->done)
		n = op->arg[2] - op->done;
	if (op->done < op->delivered || !n || op->stream->context->error)
		return;
	status = host_fetch(op->stream->context->process, op->arg[4] + op->done, op->data, n);
	if (status) {
		op_fail(op, status);
		return;
	}
	op->window = op->done;
	op->delivered = op->done + n;
}

/* When a slice begins: at the end of the last one, if the engine goes on at once. So the device
 * loses no time when a sleep was too long. */
static uint64_t begin(struct engine *engine)
{
	uint64_t now = now_ns(), late = engine->until < now ? now - engine->until : 0;
	bool goes_on = !engine->waited && late < CATCH_UP_NS;

	engine->waited = false;
	return goes_on ? engine->until : now;
}

/* Computes the next part of an operation, if the last part's time has passed. */
static void compute(struct engine *engine, struct op *op)
{
	if (window_size(op) && !op->data)
		op->data = malloc(window_size(op));
	if (window_size(op) && !op->data)
		abort(); /* an emulator out of host memory has nothing to say */
	if (op->kind == EMU_WRITE_FROM)
		fetch(op);
	if (op->kind == EMU_HOST_FUNC) {
		if (!op->stream->context->error) /* CUDA calls none after an error */
			host_function(op->stream->context->process, op->arg[1], op->arg[2]);
		op->computed = true;
	} else {
		op->owed = work_slice(engine, op, &op->computed);
		if (engine->kind == ENGINE_COMPUTE)
			op->owed =
			    with_part(op, load_slows(op->stream->context, op->owed, engine->until));
	}
	if (op->kind == EMU_READ_TO)
		deliver(op);
}

/* What the device loses when it turns to another group: those of a server of MPS run at once. */
static uint64_t turn_to(struct engine *engine, const struct context *context)
{
	uint64_t mps = context->process->mps;
	bool switched =
	    engine->last_id && engine->last_id != context->id && !(mps && engine->last_mps == mps);

	if (engine->kind == ENGINE_COMPUTE && (engine->waited || engine->last_id != context->id))
		engine->slice_left = group_slice_ns(context);
	engine->last_id = context->id;
	engine->last_mps = mps;
	return switched && engine->kind == ENGINE_COMPUTE ? engine->device->model->switch_ns : 0;
}

/* How long an operation is served at once: a kernel is only left when another context has one, and
 * so many slices show soon enough what it has had. What rests in between for other clients of MPS,
 * and copies, which take turns, are divided into slices. */
static uint64_t at_once(const struct engine *engine, const struct op *op)
{
	bool divided = engine->kind != ENGINE_COMPUTE || op->stream->context->process->mps;

	return (divided ? 1 : KERNEL_SLICES) * engine->device->model->slice_ns;
}

static void run(struct engine *engine, struct op *op)
{
	struct context *context = op->stream->context;
	struct account *account = context->process->account;
	uint64_t lost = turn_to(engine, context), start = begin(engine), ns, most;
	bool finished;

	op->running = true;
	context->running++;
	if (op->channel)
		op->channel->busy = true;
	if (start > engine->until)
		engine->until = start;
	if (!op->owed) {
		compute(engine, op);
		if (context->process->watchers)
			pthread_cond_broadcast(&context->process->changed);
	}
	most = at_once(engine, op);
	most = op->owed < most ? op->owed : most;
	ns = spend(engine, op, lost, most, op->computed && most == op->owed);
	rest(engine, context, ns);
	op->owed = over(op) ? 0 : op->owed - ns;
	op->computed |= over(op);
	finished = op->computed && !op->owed;
	engine->slice_left -= ns < engine->slice_left ? ns : engine->slice_left;
	if (engine->kind == ENGINE_COMPUTE &&
	    !op->fingerprint) { /* this is not work of the program */
		engine->device->busy_ns += ns + lost;
		account->busy_ns += ns;
		load_add(context, engine->until - ns, engine->until);
		account->kernels += finished && op->kind == EMU_LAUNCH;
		if (ns) /* not so what ends with its process, or with the device */
			trace(context, start, engine->until);
	}
	op->running = false;
	context->running--;
	if (op->channel) {
		op->channel->busy = false;
		context->process->stirred |= op->channel->stopped;
	}
	if (finished)
		op_end(op);
	context->process->stirred |= context->error;
	/* An ordinary slice changes nothing for others. */
	if (finished || context->process->stirred)
		advance();
}

static void *engine_main(void *argument)
{
	struct engine *engine = argument;
	uint64_t looked;
	struct op *op;

	prctl(PR_SET_TIMERSLACK, 1000UL);
	pthread_mutex_lock(&emulator.lock);
	for (;;) {
		looked = now_ns();
		op = next_op(engine);
		if (op) {
			run(engine, op);
			continue;
		}
		engine->waited = true;
		wait_for_work(engine, looked);
	}
	return NULL;
}

/* Waits on it end at times of now_ns(). */
static void clocked(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}

static void describe(struct device *device)
{
	const struct model *m = device->model;
	struct emu_device_info *info = &device->info;

	memcpy(info->name, m->name, sizeof(info->name));
	for (int i = 0; i < 16; i++)
		info->uuid_bytes[i] = (uint8_t)(0xE0 + i * 7);
	info->uuid_bytes[14] = (uint8_t)(info->uuid_bytes[14] + emulator.node);
	info->uuid_bytes[15] = (uint8_t)device->index;
	for (int i = 0, at = snprintf(info->uuid, sizeof(info->uuid), "GPU-"); i < 16; i++)
		at +=
		    snprintf(info->uuid + at, sizeof(info->uuid) - (size_t)at, "%s%02x",
		             i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", info->uuid_bytes[i]);
	info->memory = m->memory;
	info->context_bytes = m->context_bytes;
	info->cc_major = m->cc_major;
	info->cc_minor = m->cc_minor;
	info->multiprocessors = m->multiprocessors;
	info->minor_number = device->index;
	info->clock_mhz = 1000;
	info->memory_clock_mhz = 1000;
	info->bus_width = 64;
	info->peers = m->peer > 0;
	info->compute_channels = COMPUTE_CHANNELS;
}

int device_start(struct device *device, const struct model *model, uint32_t index)
{
	device->model = model;
	device->index = index;
	device->n_frames = (uint32_t)(model->memory / model->block);
	device->frames = calloc(device->n_frames, sizeof(device->frames[0]));
	device->memory =
	    mmap(NULL, model->memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!device->frames || device->memory == MAP_FAILED)
		return -1;
	/* Pages of 4 KiB, each when it is first used, cost more than the work on them. */
	madvise(device->memory, model->memory, MADV_HUGEPAGE);
	describe(device);
	for (int i = 0; i < N_ENGINES + MORE_HOST_ENGINES; i++) {
		enum engine_kind kind = i < N_ENGINES ? (enum engine_kind)i : ENGINE_HOST;

		device->engines[i] = (struct engine){.device = device, .kind = kind};
		clocked(&device->engines[i].work);
		if (pthread_create(&device->engines[i].thread, NULL, engine_main,
		                   &device->engines[i]))
			return -1;
	}
	return 0;
}
