/* requests.c: what each request does. The lock is held; waiting gives it up. */
#include "server/server.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define QUEUE_LIMIT 1024 /* operations on a stream before a launch blocks, as on a real card */

bool send_reply(int fd, enum emu_status status, const uint64_t *r, const void *payload,
                uint64_t size)
{
	struct emu_reply reply = {.status = status, .payload = size};

	for (int i = 0; r && i < 5; i++)
		reply.r[i] = r[i];
	return send_all(fd, &reply, sizeof(reply)) && send_all(fd, payload, size);
}

bool reply(const struct connection *c, enum emu_status status, const uint64_t *r)
{
	return send_reply(c->fd, status, r, NULL, 0);
}

enum emu_status context_status(const struct context *context)
{
	return context->error ? context->error : context->device->error;
}

struct device *device_at(const struct connection *c, uint64_t ordinal)
{
	if (!c->process)
		return ordinal < emulator.n_devices ? &emulator.devices[ordinal] : NULL;
	return ordinal < c->process->n_visible ? &emulator.devices[c->process->visible[ordinal]]
	                                       : NULL;
}

uint64_t ordinal_of(const struct connection *c, const struct device *device)
{
	for (uint32_t i = 0; i < c->process->n_visible; i++)
		if (c->process->visible[i] == device->index)
			return i;
	return UINT32_MAX; /* memory that another process has opened for it */
}

/* A word of CUDA_VISIBLE_DEVICES: an index, or the beginning of a UUID; -1 for neither. */
static int device_named(const char *word, size_t length)
{
	char *end;
	unsigned long index = strtoul(word, &end, 10);

	if (length && end == word + length && index < emulator.n_devices)
		return (int)index;
	for (uint32_t i = 0; i < emulator.n_devices && length > 4; i++)
		if (!strncmp(emulator.devices[i].info.uuid, word, length))
			return (int)i;
	return -1;
}

/* What follows a word that names no device is ignored, and a device named twice hides all. */
void see_devices(struct process *process, const char *list)
{
	bool seen[EMU_MAX_DEVICES] = {0};

	process->n_visible = 0;
	for (uint32_t i = 0; !list && i < emulator.n_devices; i++)
		process->visible[process->n_visible++] = i;
	while (list && *list) {
		size_t length = strcspn(list, ",");
		int index = device_named(list, length);

		if (index < 0)
			return;
		if (seen[index]) {
			process->n_visible = 0;
			return;
		}
		seen[index] = true;
		process->visible[process->n_visible++] = (uint32_t)index;
		list += length + (list[length] == ',');
	}
}

static void break_contexts(const struct device *device, enum emu_status error)
{
	for (struct process *p = emulator.processes; p; p = p->next)
		for (struct context *x = p->contexts; x; x = x->next)
			if (x->device == device && !x->error)
				x->error = error;
}

/* As if each program set its slices itself. */
static void own_slices(struct device *device, uint64_t us)
{
	device->controls.slice_us = us;
	for (struct process *p = emulator.processes; p && us; p = p->next)
		for (struct context *x = p->contexts; x; x = x->next)
			if (x->device == device)
				x->groups[ENGINE_COMPUTE].slice_us = us;
}

/* What it has spun so far, and what it still owes of that, is all that such a kernel takes. */
static void end_spins(struct device *device)
{
	for (struct process *p = emulator.processes; p; p = p->next)
		for (struct context *x = p->contexts; x; x = x->next)
			for (struct stream *s = x->device == device ? x->streams : NULL; s;
			     s = s->next)
				for (struct op *op = s->first; op; op = op->next)
					if (op->kind == EMU_LAUNCH && op->arg[1] == EMU_SPIN)
						op->arg[2] = op->done;
}

static enum emu_status inject(struct device *device, uint64_t fault, uint64_t value)
{
	switch (fault) {
	case EMU_FAULT_LOST:
		device->error = EMU_LOST;
		break_contexts(device, EMU_LOST);
		break;
	case EMU_FAULT_OOM_ONCE:
		device->oom_once = true;
		break;
	case EMU_FAULT_ECC:
		break_contexts(device, EMU_ECC);
		break;
	case EMU_FAULT_REPAIRED:
		device->error = EMU_OK;
		break;
	case EMU_FAULT_CONTROLS_UNKNOWN:
		device->controls.unknown = true;
		break;
	case EMU_FAULT_CONTROL_ONCE:
		device->controls.once = true;
		break;
	case EMU_FAULT_STOP_HANGS:
		device->controls.stop_hangs = true;
		break;
	case EMU_FAULT_OWN_SLICE:
		own_slices(device, value);
		break;
	case EMU_FAULT_CHANNELS:
		if (!value || value > MAX_CHANNELS)
			return EMU_INVALID;
		device->controls.channels = device->info.compute_channels = (uint32_t)value;
		break;
	case EMU_FAULT_CONTROLS_WORK:
		memset(&device->controls, 0, sizeof(device->controls));
		device->info.compute_channels = COMPUTE_CHANNELS;
		break;
	case EMU_FAULT_LOCK:
	case EMU_FAULT_SAVE:
	case EMU_FAULT_RESTORE:
	case EMU_FAULT_UNLOCK:
		device->checkpoint_fails[EMU_CP_LOCK + fault - EMU_FAULT_LOCK] =
		    value ? (uint32_t)value : 1;
		break;
	case EMU_FAULT_SPINS_END:
		end_spins(device);
		break;
	default:
		return EMU_INVALID;
	}
	changed();
	return EMU_OK;
}

/* Requests about a device, which monitors may send too. */
static bool serve_device(struct connection *c, const struct emu_request *q)
{
	struct device *device = device_at(c, q->arg[0]);
	uint64_t r[5] = {0};

	if (!device)
		return reply(c, EMU_INVALID, NULL);
	if (device->error && q->op != EMU_INJECT)
		return reply(c, device->error, NULL);
	switch (q->op) {
	case EMU_DEVICE:
		return send_reply(c->fd, EMU_OK, NULL, &device->info, sizeof(device->info));
	case EMU_MEM_INFO:
		r[0] = device_free_bytes(device);
		r[1] = device->model->memory;
		return reply(c, EMU_OK, r);
	case EMU_UTILIZATION:
		r[0] = device->busy_ns;
		r[1] = now_ns();
		r[2] = device->in_bytes;
		r[3] = device->out_bytes;
		r[4] = (uint64_t)(clock_part(device, r[1]) * 1e6);
		return reply(c, EMU_OK, r);
	default: /* EMU_INJECT */
		return reply(c, inject(device, q->arg[1], q->arg[2]), NULL);
	}
}

static bool serve_processes(struct connection *c, const struct emu_request *q)
{
	struct emu_process_info list[256] = {0};
	struct device *device = device_at(c, q->arg[0]);
	uint64_t n = 0;

	if (!device || device->error)
		return reply(c, device ? device->error : EMU_INVALID, NULL);
	for (struct process *p = emulator.processes; p && n < 256; p = p->next) {
		bool uses = false;

		for (struct context *x = p->contexts; x; x = x->next)
			uses |= x->device == device;
		if (uses && p->state != EMU_CHECKPOINTED)
			list[n++] = (struct emu_process_info){.pid = p->pid,
			                                      .bytes = process_plain(p, device),
			                                      .busy_ns = p->account->busy_ns};
	}
	return send_reply(c->fd, EMU_OK, NULL, list, n * sizeof(list[0]));
}

static bool serve_stats(struct connection *c)
{
	char *text = stats_json();
	bool sent = send_reply(c->fd, text ? EMU_OK : EMU_OOM, NULL, text, text ? strlen(text) : 0);

	free(text);
	return sent;
}

static bool create_context(struct connection *c, const struct emu_request *q)
{
	struct device *device = device_at(c, q->arg[0]);
	struct context *whole = q->arg[2] ? context_find(c->process, q->arg[2]) : NULL;
	struct context *context = NULL;
	enum emu_status status = EMU_INVALID;

	if (device && (whole || !q->arg[2]))
		context = context_create(c->process, device, q->arg[1], whole, q->arg[3], &status);
	return reply(c, status, (uint64_t[5]){context ? context->id : 0});
}

static bool create_event(struct connection *c, struct context *context)
{
	struct event *event = event_create(context);

	return reply(c, event ? EMU_OK : EMU_OOM, (uint64_t[5]){event ? event->id : 0});
}

/* A context may end during a wait, so it is looked up again after each. */
static enum emu_status wait_one(struct process *process, uint64_t id)
{
	struct context *context = context_find(process, id);
	uint64_t seq = context ? context->last_seq : 0;

	while (context && !context_idle(context, seq) && !process->dead) {
		wait_change(process);
		context = context_find(process, id);
	}
	return context ? context_status(context) : EMU_INVALID;
}

/* The next green context of a context, in the order in which they were made. */
static uint64_t next_part(const struct process *process, uint64_t whole, uint64_t after)
{
	uint64_t best = 0;

	for (const struct context *c = process->contexts; c; c = c->next)
		if (c->whole && c->whole->id == whole && c->id > after && (!best || c->id < best))
			best = c->id;
	return best;
}

void take_time(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / UINT64_C(1000000000)),
	                     (long)(ns % UINT64_C(1000000000))};

	pthread_mutex_unlock(&emulator.lock);
	nanosleep(&t, NULL);
	pthread_mutex_lock(&emulator.lock);
}

/* With a context, the green ones in it. */
enum emu_status wait_context(struct process *process, uint64_t id)
{
	enum emu_status status = wait_one(process, id);

	for (uint64_t part = 0; (part = next_part(process, id, part));) {
		enum emu_status its = wait_one(process, part);

		if (!status && its != EMU_INVALID) /* it may have ended meanwhile */
			status = its;
	}
	pools_synchronized(process);
	return status;
}

static bool serve_context(struct connection *c, const struct emu_request *q)
{
	struct context *context = context_find(c->process, q->arg[0]);
	struct stream *stream;

	if (!context)
		return reply(c, EMU_INVALID, NULL);
	switch (q->op) {
	case EMU_CTX_DESTROY:
		context_destroy(context);
		return reply(c, EMU_OK, NULL);
	case EMU_CTX_SYNC:
		return reply(c, wait_context(c->process, q->arg[0]), NULL);
	case EMU_STREAM_CREATE:
		stream = stream_create(context, q->arg[1]);
		return reply(c, stream ? EMU_OK : EMU_OOM, (uint64_t[5]){stream ? stream->id : 0});
	default: /* EMU_EVENT_CREATE */
		return create_event(c, context);
	}
}

static bool serve_stream(struct connection *c, const struct emu_request *q)
{
	struct stream *stream = stream_find(c->process, q->arg[0]);
	uint64_t seq = stream ? stream->context->last_seq : 0;
	enum emu_status status;

	if (!stream)
		return reply(c, EMU_INVALID, NULL);
	if (q->op == EMU_STREAM_QUERY) {
		status = context_status(stream->context);
		return reply(c,
		             status                            ? status
		             : stream_idle(stream, UINT64_MAX) ? EMU_OK
		                                               : EMU_NOT_READY,
		             NULL);
	}
	while (stream && !stream_idle(stream, seq) && !c->process->dead) {
		wait_change(c->process);
		stream = stream_find(c->process, q->arg[0]);
	}
	pools_synchronized(c->process);
	if (stream && q->op == EMU_STREAM_DESTROY && !stream->legacy)
		stream_destroy(stream);
	else if (stream)
		return reply(c, context_status(stream->context), NULL);
	return reply(c, stream ? EMU_OK : EMU_INVALID, NULL);
}

static bool serve_event(struct connection *c, const struct emu_request *q)
{
	struct event *event = event_find(c->process, q->arg[0]);
	uint64_t generation = event ? event->issued : 0;
	enum emu_status status;

	if (!event)
		return reply(c, EMU_INVALID, NULL);
	if (q->op == EMU_EVENT_DESTROY) {
		event->destroyed = true;
		event_release(event);
		return reply(c, EMU_OK, NULL);
	}
	while (q->op == EMU_EVENT_SYNC && event && event->completed < generation &&
	       !c->process->dead) {
		wait_change(c->process);
		event = event_find(c->process, q->arg[0]);
	}
	if (!event)
		return reply(c, EMU_INVALID, NULL);
	if (q->op == EMU_EVENT_SYNC)
		pools_synchronized(c->process);
	status = context_status(event->context);
	if (!status && event->completed < event->issued && q->op == EMU_EVENT_QUERY)
		status = EMU_NOT_READY;
	return reply(c, status, (uint64_t[5]){event->issued, event->time_ns});
}

static struct op *new_op(const struct emu_request *q, uint8_t *data)
{
	struct op *op = calloc(1, sizeof(*op));

	if (!op)
		abort(); /* an emulator out of host memory has nothing to say */
	op->kind = (enum emu_op)q->op;
	memcpy(op->arg, q->arg, sizeof(op->arg));
	op->data = data;
	return op;
}

/* Device to host, in stream order; the reply carries the bytes. */
static bool serve_read(struct connection *c, const struct emu_request *q)
{
	struct stream *stream = stream_find(c->process, q->arg[0]);
	struct context *context = stream ? stream->context : NULL;
	uint64_t id = context ? context->id : 0;
	uint8_t *data = q->arg[2] < EMU_MAX_PAYLOAD ? malloc(q->arg[2] + 1) : NULL;
	bool finished = false, sent;
	enum emu_status status;
	struct op *op;

	if (!context || !data) {
		free(data);
		return reply(c, EMU_INVALID, NULL);
	}
	op = new_op(q, data);
	op->finished = &finished;
	op_submit(stream, op);
	while (!finished)
		wait_change(c->process);
	context = context_find(c->process, id);
	status = context ? context_status(context) : EMU_INVALID;
	/* A stopped process takes its bytes when it goes on; no other process waits for that. */
	pthread_mutex_unlock(&emulator.lock);
	sent = send_reply(c->fd, status, NULL, data, status ? 0 : q->arg[2]);
	pthread_mutex_lock(&emulator.lock);
	free(data);
	return sent;
}

/* No reply: a fault shows in the context's error, as on a real card. */
static bool serve_async(struct connection *c, const struct emu_request *q, uint8_t *payload)
{
	struct stream *stream = stream_find(c->process, q->arg[0]);
	bool with_host = q->op == EMU_READ_TO || q->op == EMU_WRITE_FROM;
	struct event *event;
	struct op *op;

	while (stream && stream->length >= QUEUE_LIMIT && !c->process->dead) {
		wait_change(c->process);
		stream = stream_find(c->process, q->arg[0]);
	}
	c->process->received++;
	pthread_cond_broadcast(&c->process->changed);
	if (!stream || c->process->dead || (q->op == EMU_WRITE && q->payload != q->arg[2]) ||
	    (q->op == EMU_LAUNCH && q->arg[1] == EMU_FINGERPRINT &&
	     q->payload != EMU_FINGERPRINT_KEYS) ||
	    (with_host && (payload || q->arg[2] >= EMU_MAX_PAYLOAD))) {
		free(payload);
		return true;
	}
	op = new_op(q, payload);
	if (q->op == EMU_FREE_ORDERED && alloc_find(c->process, q->arg[1]))
		alloc_find(c->process, q->arg[1])->graph.unfreed = false;
	if (q->op == EMU_RECORD || q->op == EMU_WAIT) {
		event = event_find(c->process, q->arg[1]);
		if (!event) {
			free(op);
			return true;
		}
		op->event = event;
		op->generation = q->op == EMU_RECORD ? ++event->issued : event->issued;
		event->waiting++;
	}
	op_submit(stream, op);
	return true;
}

/* Requests that only processes may send, not monitors. */
static const struct {
	enum emu_op first, last;
	bool (*by)(struct connection *c, const struct emu_request *q);
} served[] = {
    {EMU_CTX_CREATE, EMU_CTX_CREATE, create_context},
    {EMU_CTX_DESTROY, EMU_STREAM_CREATE, serve_context},
    {EMU_STREAM_DESTROY, EMU_STREAM_QUERY, serve_stream},
    {EMU_EVENT_CREATE, EMU_EVENT_CREATE, serve_context},
    {EMU_EVENT_DESTROY, EMU_EVENT_QUERY, serve_event},
    {EMU_ALLOC, EMU_HOST_UNPIN, serve_memory},
    {EMU_VMM_RESERVE, EMU_VMM_ACCESS, serve_vmm},
    {EMU_GRAPH_RESERVE, EMU_GRAPH_RESET, serve_graph},
    {EMU_IPC_EXPORT, EMU_IPC_CLOSE, serve_ipc},
    {EMU_PEER_ENABLE, EMU_PEER_DISABLE, serve_peer},
    {EMU_POOL_CREATE, EMU_POOL_IS_OPEN, serve_pool},
    {EMU_READ, EMU_READ, serve_read},
};

static bool depends_on_files(enum emu_op op)
{
	return op == EMU_MEM_INFO || op == EMU_ALLOC || op == EMU_VMM_CREATE ||
	       op == EMU_CHECKPOINT;
}

/* Does the process send the request once more when it is back? It does if it waits for a reply. */
static bool asks_again(const struct connection *c, const struct emu_request *q)
{
	return c->gone && q->op < EMU_ASYNC;
}

bool serve(struct connection *c, const struct emu_request *q, uint8_t *payload)
{
	if (depends_on_files(q->op))
		end_closed_files();
	if (q->op == EMU_CHECKPOINT && c->process) {
		bool goes_on = serve_checkpoint(c, q, payload);

		free(payload);
		return goes_on;
	}
	while (c->process && q->op != EMU_RM && !c->process->dead && !asks_again(c, q) &&
	       (c->process->locking || c->process->state != EMU_RUNNING))
		wait_change(c->process);
	if (asks_again(c, q)) {
		free(payload);
		return false;
	}
	if (q->op > EMU_ASYNC && c->process) {
		/* The n-th asynchronous request of a process is served n-th, whichever thread sent
		 * it. */
		while (c->process->received < q->sent && !c->process->dead)
			wait_change(c->process);
		return serve_async(c, q, payload);
	}
	if (q->op == EMU_RM && c->process) {
		bool goes_on = serve_rm(c, q, payload);

		free(payload);
		return goes_on;
	}
	free(payload);
	switch (q->op) {
	case EMU_DEVICE:
	case EMU_MEM_INFO:
	case EMU_UTILIZATION:
	case EMU_INJECT:
		return serve_device(c, q);
	case EMU_PROCESSES:
		return serve_processes(c, q);
	case EMU_STATS:
		return serve_stats(c);
	default:
		break;
	}
	if (!c->process)
		return false;
	while (c->process->received < q->sent && !c->process->dead)
		wait_change(c->process);
	for (size_t i = 0; i < sizeof(served) / sizeof(served[0]); i++)
		if (q->op >= served[i].first && q->op <= served[i].last)
			return served[i].by(c, q);
	return false;
}
