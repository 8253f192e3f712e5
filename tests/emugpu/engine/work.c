/* work.c: what an operation does in one time slice, and how long that takes. Work proceeds block
 * by block. A kernel faults its blocks in one at a time, which is slow; a prefetch moves them at
 * the speed of the link, while evictions go in the other direction. */
#include "engine/engine.h"

#include <string.h>

#define MEMORY_TO_LINK 64

static uint64_t duration(uint64_t bytes, uint64_t bytes_per_s)
{
	return (uint64_t)((double)bytes / (double)bytes_per_s * 1e9);
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Bytes over the link in both directions at once; the duplex limit holds when
 * the other direction is busy too, with this operation or with another. */
static uint64_t link_time(struct device *device, uint64_t in, uint64_t out)
{
	const struct model *m = device->model;
	uint64_t now = now_ns();
	bool both = (in || device->in_until > now) && (out || device->out_until > now);
	double speed = (double)m->link * (both ? m->duplex : 1.0);
	uint64_t in_ns = (uint64_t)((double)in / speed * 1e9);
	uint64_t out_ns = (uint64_t)((double)out / speed * 1e9);

	if (in)
		device->in_until = max_u64(device->in_until, now) + in_ns;
	if (out)
		device->out_until = max_u64(device->out_until, now) + out_ns;
	return max_u64(in_ns, out_ns);
}

/* From one device to another: over both links at once. */
static uint64_t across_time(struct device *to, struct device *from, uint64_t bytes)
{
	to->in_bytes += bytes;
	from->out_bytes += bytes;
	return max_u64(link_time(to, bytes, 0), link_time(from, 0, bytes));
}

/* Under MPS, also all that other clients of the server have on the device. */
static void fail_neighbours(const struct context *context)
{
	for (struct process *p = emulator.processes; p; p = p->next) {
		if (p->mps != context->process->mps)
			continue;
		p->stirred = true;
		for (struct context *c = p->contexts; c; c = c->next)
			if (c->device == context->device)
				context_fail(c, EMU_BAD_ADDRESS);
	}
}

void op_fail(struct op *op, enum emu_status status)
{
	const struct context *context = op->stream->context;
	const struct context *whole = context->whole ? context->whole : context;

	/* A bad address breaks all contexts of the process, on all devices. */
	for (struct context *c = context->process->contexts; c; c = c->next)
		if (status == EMU_BAD_ADDRESS || context_includes(whole, c))
			context_fail(c, status);
	if (status == EMU_BAD_ADDRESS && context->process->mps)
		fail_neighbours(context);
}

/* A device works on memory of another one: over the link between peers or, if the memory is
 * paged, over both links to the host. */
static uint64_t away_time(struct device *device, struct device *home, uint64_t bytes)
{
	if (device == home)
		return 0;
	if (!device->model->peer)
		return across_time(device, home, bytes);
	device->peer_bytes += bytes;
	return duration(bytes, device->model->peer);
}

/* The allocation and the block of a pointer, and how many bytes of the block follow it. */
struct place {
	struct range range;
	struct alloc *alloc;
	uint32_t index;
	uint64_t offset, bytes;
};

static enum emu_reach reach_of(const struct op *op)
{
	switch (op->kind) {
	case EMU_LAUNCH:
	case EMU_SET:
	case EMU_WRITE_VALUE:
	case EMU_WAIT_VALUE:
		return EMU_BY_KERNEL;
	case EMU_COPY:
		return (enum emu_reach)op->arg[4];
	default:
		return EMU_BY_COPY;
	}
}

/* The bytes from a pointer on, at most so many, if the operation may access them. */
static bool find(const struct op *op, uint64_t pointer, uint64_t bytes, unsigned access,
                 struct place *out)
{
	struct context *context = op->stream->context;
	uint64_t block = context->device->model->block;
	struct range range;

	if (!range_at(context->process, pointer, &range) ||
	    (context_access(context, reach_of(op), &range) & access) != access)
		return false;
	if (range.alloc->kind == EMU_GRAPH && !range.alloc->graph.live)
		return false;
	out->range = range;
	out->alloc = range.alloc;
	out->index = (uint32_t)(range.offset / block);
	out->offset = range.offset % block;
	out->bytes = block - out->offset;
	if (out->bytes > range.bytes)
		out->bytes = range.bytes;
	if (out->bytes > bytes)
		out->bytes = bytes;
	return true;
}

/* Pages a block in because it is touched, and adds the time that this takes to *ns. */
static bool touch(struct op *op, struct place *at, bool write, uint64_t *ns)
{
	struct context *context = op->stream->context;
	struct device *device = at->alloc->device;
	uint64_t in = 0, out = 0;
	enum emu_status status = block_restore(at->alloc, at->index, &in, &out);

	if (status) {
		op_fail(op, status);
		return false;
	}
	if (in)
		*ns += duration(in, device->model->fault);
	if (out)
		*ns += link_time(device, 0, out);
	context->process->account->faulted_in += in;
	if (write)
		at->alloc->blocks[at->index].dirty = at->alloc->blocks[at->index].written = true;
	return true;
}

/* Add to the word that EMU_CHECKSUM's third parameter points to. */
static void store_checksum(struct op *op, uint64_t *ns)
{
	struct place at;
	uint64_t value;

	if (!find(op, op->arg[4], sizeof(value), ACCESS_BOTH, &at) || at.bytes < sizeof(value)) {
		op_fail(op, EMU_BAD_ADDRESS);
		return;
	}
	if (!touch(op, &at, true, ns))
		return;
	memcpy(&value, block_data(at.alloc, at.index) + at.offset, sizeof(value));
	value += op->result;
	memcpy(block_data(at.alloc, at.index) + at.offset, &value, sizeof(value));
}

static uint64_t spin_slice(struct op *op, uint64_t slice, bool *finished)
{
	uint64_t left = op->arg[2] - op->done;
	uint64_t ns = left < slice ? left : slice;

	op->done += ns;
	*finished = op->done >= op->arg[2];
	return ns;
}

/* The lock is given up while a kernel computes on a block, which is pinned meanwhile. */
static void pin(struct op *op, const struct alloc *alloc, struct frame *frame)
{
	op->pins = alloc;
	frame->pins++;
	pthread_mutex_unlock(&emulator.lock);
}

static void unpin(struct op *op, struct frame *frame)
{
	pthread_mutex_lock(&emulator.lock);
	op->pins = NULL;
	if (frame->pins) /* another context of the process may have freed the block meanwhile */
		frame->pins--;
}

/* Computes on the bytes of a block that `at` names, which are on the device. */
static void compute(struct op *op, const struct place *at)
{
	enum emu_kernel kernel = (enum emu_kernel)op->arg[1];
	struct frame *frame = &at->alloc->device->frames[at->alloc->blocks[at->index].frame];
	uint32_t *words;

	if (kernel == EMU_ADD && at->bytes == at->alloc->device->model->block) {
		block_add(at->alloc, at->index, add_value(&op->arg[2]));
		return;
	}
	words = (uint32_t *)(kernel == EMU_FILL
	                         ? block_target(at->alloc, at->index, at->offset, at->bytes)
	                         : block_data(at->alloc, at->index) + at->offset);
	pin(op, at->alloc, frame);
	kernel_block(kernel, &op->arg[2], words, op->done / 4, at->bytes / 4, &op->result);
	unpin(op, frame);
}

/* One block of a kernel that walks over arg[2] (pointer), arg[3] (words). */
static uint64_t kernel_step(struct op *op, uint64_t total, bool *finished)
{
	enum emu_kernel kernel = (enum emu_kernel)op->arg[1];
	struct device *device = op->stream->context->device;
	unsigned access = kernel == EMU_CHECKSUM ? ACCESS_READ : ACCESS_BOTH;
	uint64_t rounds = kernel == EMU_ADD ? max_u64(op->arg[5], 1) : 1;
	struct device *home;
	struct place at;
	uint64_t ns = 0;

	if (!find(op, op->arg[2] + op->done, total - op->done, access, &at)) {
		op_fail(op, EMU_BAD_ADDRESS);
		return 0;
	}
	if (!touch(op, &at, kernel != EMU_CHECKSUM, &ns))
		return ns;
	home = at.alloc->device;
	compute(op, &at);
	ns += max_u64(duration(at.bytes, device->model->bandwidth),
	              away_time(device, home, at.bytes)) *
	      rounds;
	op->done += at.bytes;
	if (op->done >= total) {
		*finished = true;
		if (kernel == EMU_CHECKSUM)
			store_checksum(op, &ns);
	}
	return ns;
}

/* One block of EMU_FINGERPRINT, which reads arg[2] (pointer), arg[3] (tiles) and leaves its
 * values in host memory at arg[4]. A card reads its memory many times as fast as it copies it. */
static uint64_t fingerprint_step(struct op *op, bool *finished)
{
	struct process *process = op->stream->context->process;
	uint64_t total = op->arg[3] * FINGERPRINT_TILE, ns = 0, size;
	enum emu_status status;
	struct frame *frame;
	const uint8_t *values;
	struct place at;

	if (!op->fingerprint && op->arg[3] <= UINT32_MAX)
		op->fingerprint = fingerprint_begin(op->data, op->arg[3]);
	if (!op->fingerprint ||
	    !find(op, op->arg[2] + op->done, total - op->done, ACCESS_READ, &at) ||
	    at.bytes % FINGERPRINT_TILE) {
		op_fail(op, EMU_BAD_ADDRESS);
		return 0;
	}
	if (!touch(op, &at, false, &ns))
		return ns;
	frame = &at.alloc->device->frames[at.alloc->blocks[at.index].frame];
	values = block_data(at.alloc, at.index) + at.offset;
	pin(op, at.alloc, frame);
	fingerprint_tiles(op->fingerprint, values, at.bytes / FINGERPRINT_TILE);
	unpin(op, frame);
	op->done += at.bytes;
	*finished = op->done >= total;
	if (*finished) {
		values = fingerprint_values(op->fingerprint, &size);
		status = host_deliver(process, op->arg[4], values, size);
		if (status)
			op_fail(op, status);
	}
	return ns + duration(at.bytes, MEMORY_TO_LINK * op->stream->context->device->model->link);
}

static uint64_t launch_slice(struct op *op, uint64_t slice, bool *finished)
{
	enum emu_kernel kernel = (enum emu_kernel)op->arg[1];
	uint64_t total = op->arg[3] * 4, ns = 0;

	if (kernel == EMU_SPIN)
		return spin_slice(op, slice, finished);
	if (kernel == EMU_FINGERPRINT && total)
		return fingerprint_step(op, finished);
	if (kernel == EMU_EMPTY || !total) {
		*finished = true;
		return 2000;
	}
	if (op->arg[2] % 4 || op->arg[3] > UINT64_MAX / 8) {
		op_fail(op, EMU_BAD_ADDRESS);
		return 0;
	}
	/* A kernel's result is computed in its first round; its time is spread over all rounds. */
	do
		ns += kernel_step(op, total, finished);
	while (!*finished && ns < slice && !op->stream->context->error &&
	       !op->stream->context->process->dead);
	return ns;
}

static void set_bytes(uint8_t *to, uint64_t bytes, uint32_t value, uint64_t width)
{
	if (width == 1)
		memset(to, (int)value, bytes);
	else
		for (uint64_t i = 0; i + width <= bytes; i += width)
			memcpy(to + i, &value, width);
}

static uint64_t set_step(struct op *op, bool *finished)
{
	struct device *device = op->stream->context->device;
	uint64_t total = op->arg[3] * op->arg[4], ns = 0;
	struct place at;

	if (!find(op, op->arg[1] + op->done, total - op->done, ACCESS_WRITE, &at)) {
		op_fail(op, EMU_BAD_ADDRESS);
		return 0;
	}
	if (!touch(op, &at, true, &ns))
		return ns;
	if (at.bytes == at.alloc->device->model->block && op->arg[3] == sizeof(uint32_t))
		block_fill(at.alloc, at.index, (uint32_t)op->arg[2]); /* by far the most bytes */
	else
		set_bytes(block_target(at.alloc, at.index, at.offset, at.bytes), at.bytes,
		          (uint32_t)op->arg[2], op->arg[3]);
	op->done += at.bytes;
	*finished = op->done >= total;
	return ns + max_u64(duration(at.bytes, device->model->bandwidth),
	                    away_time(device, at.alloc->device, at.bytes));
}

/* May one of the two devices reach the memory that is on the other? */
static bool direct(const struct process *process, const struct place *to, const struct place *from)
{
	return to->alloc->device->model->peer &&
	       (device_access(process, from->alloc->device, &to->range) & ACCESS_WRITE ||
	        device_access(process, to->alloc->device, &from->range) & ACCESS_READ);
}

static uint64_t copy_step(struct op *op, bool *finished)
{
	struct device *device = op->stream->context->device;
	uint64_t left = op->arg[3] - op->done, ns = 0, bytes;
	struct frame *source;
	struct place to, from;

	if (!find(op, op->arg[1] + op->done, left, ACCESS_WRITE, &to) ||
	    !find(op, op->arg[2] + op->done, left, ACCESS_READ, &from)) {
		op_fail(op, EMU_BAD_ADDRESS);
		return 0;
	}
	bytes = to.bytes < from.bytes ? to.bytes : from.bytes;
	/* Both blocks have to be on their devices together, so paging in the second must not
	 * evict the first. */
	if (!touch(op, &from, false, &ns))
		return ns;
	source = &from.alloc->device->frames[from.alloc->blocks[from.index].frame];
	source->pins++;
	if (touch(op, &to, true, &ns)) {
		const uint8_t *bytes_there = block_data(from.alloc, from.index) + from.offset;

		memmove(block_target(to.alloc, to.index, to.offset, bytes), bytes_there, bytes);
	}
	source->pins--;
	op->done += bytes;
	*finished = op->done >= op->arg[3];
	if (to.alloc->device == from.alloc->device)
		return ns + duration(2 * bytes, device->model->bandwidth);
	if (direct(op->stream->context->process, &to, &from))
		return ns + away_time(to.alloc->device, from.alloc->device, bytes);
	return ns + across_time(to.alloc->device, from.alloc->device, bytes);
}

uint64_t window_size(const struct op *op)
{
	const struct model *m = op->stream->context->device->model;
	uint64_t speed = op->arg[3] ? m->link : m->pageable;

	if (op->kind != EMU_READ_TO && op->kind != EMU_WRITE_FROM)
		return 0;
	return (uint64_t)((double)speed * (double)m->slice_ns / 1e9) + m->block;
}

/* How many bytes of its window an operation has still to write, or has room for. */
static uint64_t window_left(const struct op *op)
{
	return op->kind == EMU_READ_TO ? op->window + window_size(op) - op->done
	                               : op->delivered - op->done;
}

/* Host to device (EMU_WRITE) and back (EMU_READ). */
static uint64_t transfer_step(struct op *op, uint64_t total, bool *finished)
{
	struct device *device;
	bool write = op->kind != EMU_READ && op->kind != EMU_READ_TO;
	struct place at;
	uint64_t ns = 0;

	if (!find(op, op->arg[1] + op->done, total - op->done, write ? ACCESS_WRITE : ACCESS_READ,
	          &at)) {
		op_fail(op, EMU_BAD_ADDRESS);
		return 0;
	}
	if (window_size(op) && at.bytes > window_left(op))
		at.bytes = window_left(op);
	device = at.alloc->device;
	if (write) {
		if (!touch(op, &at, true, &ns))
			return ns;
		memcpy(block_target(at.alloc, at.index, at.offset, at.bytes),
		       op->data + op->done - op->window, at.bytes);
		device->in_bytes += at.bytes;
		op->stream->context->process->account->copied_in += at.bytes;
	} else {
		block_read(at.alloc, at.index, at.offset, at.bytes,
		           op->data + op->done - op->window);
		device->out_bytes += at.bytes;
	}
	op->done += at.bytes;
	*finished = op->done >= total;
	if (op->arg[3])
		return ns + link_time(device, write ? at.bytes : 0, write ? 0 : at.bytes);
	return ns + duration(at.bytes, device->model->pageable);
}

static uint64_t prefetch_step(struct op *op, bool *finished)
{
	struct device *device;
	uint64_t in = 0, out = 0;
	struct place at;
	uint32_t frame;

	if (!find(op, op->arg[1] + op->done, op->arg[2] - op->done, ACCESS_BOTH, &at) ||
	    !at.alloc->managed) {
		op_fail(op, EMU_BAD_ADDRESS);
		return 0;
	}
	device = at.alloc->device;
	/* If there is no room, or a kernel works on the block, the prefetch does not fail: the
	 * block stays where it is. */
	frame = at.alloc->blocks[at.index].frame;
	if (op->arg[3])
		(void)block_restore(at.alloc, at.index, &in, &out);
	else if (frame != NO_FRAME && !device->frames[frame].pins)
		block_evict(at.alloc, at.index, &out);
	op->stream->context->process->account->copied_in += in;
	op->done += at.bytes;
	*finished = op->done >= op->arg[2];
	return link_time(device, in, out);
}

/* The word that is written or waited for. */
static bool find_value(const struct op *op, unsigned access, struct place *at)
{
	return find(op, op->arg[1], op->arg[3], access, at) && at->bytes == op->arg[3];
}

void value_write(struct op *op)
{
	struct place at;
	uint64_t ns = 0;

	if (!find_value(op, ACCESS_WRITE, &at))
		op_fail(op, EMU_BAD_ADDRESS);
	else if (touch(op, &at, true, &ns))
		memcpy(block_data(at.alloc, at.index) + at.offset, &op->arg[2], op->arg[3]);
}

static bool holds(const struct op *op, uint64_t have)
{
	uint64_t want = op->arg[2];
	bool wide = op->arg[3] == 8;

	switch ((enum emu_condition)op->arg[4]) {
	case EMU_GEQ:
		return wide ? (int64_t)(have - want) >= 0
		            : (int32_t)((uint32_t)have - (uint32_t)want) >= 0;
	case EMU_EQ:
		return have == want;
	case EMU_AND:
		return have & want;
	default:
		return wide ? ~(have | want) : (uint32_t) ~(have | want);
	}
}

bool value_waits(const struct op *op)
{
	struct place at;
	uint64_t have = 0;

	if (!find_value(op, ACCESS_READ, &at))
		return false; /* no stream will ever write there */
	memcpy(&have, block_data(at.alloc, at.index) + at.offset, op->arg[3]);
	return !holds(op, have);
}

static uint64_t step(struct op *op, uint64_t slice, bool *finished)
{
	switch (op->kind) {
	case EMU_LAUNCH:
		return launch_slice(op, slice, finished);
	case EMU_SET:
		return set_step(op, finished);
	case EMU_COPY:
		return copy_step(op, finished);
	case EMU_WRITE:
	case EMU_WRITE_FROM:
	case EMU_READ:
	case EMU_READ_TO:
		return transfer_step(op, op->arg[2], finished);
	case EMU_PREFETCH:
		return prefetch_step(op, finished);
	default:
		*finished = true;
		return 0;
	}
}

static bool empty(const struct op *op)
{
	switch (op->kind) {
	case EMU_SET:
		return !op->arg[4];
	case EMU_COPY:
		return !op->arg[3];
	case EMU_WRITE:
	case EMU_WRITE_FROM:
	case EMU_READ:
	case EMU_READ_TO:
	case EMU_PREFETCH:
		return !op->arg[2];
	default:
		return false;
	}
}

uint64_t work_slice(struct engine *engine, struct op *op, bool *finished)
{
	struct context *context = op->stream->context;
	uint64_t slice = engine->device->model->slice_ns, ns = 0;

	*finished = empty(op);
	while (!*finished && ns < slice && !context->error && !context->process->dead &&
	       (!window_size(op) || window_left(op)))
		ns += step(op, slice, finished);
	if (context->error || context->process->dead)
		*finished = true;
	return ns;
}
