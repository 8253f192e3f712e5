/* memory.c: frames of device memory, plain and managed allocations, LRU eviction.
 *
 * Plain memory keeps its frames until it is freed. Managed memory has a host
 * copy; its blocks come to the device when touched or prefetched and leave it,
 * least recently used first and whoever owns them, when room is needed.
 */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Device pointers are addresses at which no process has anything mapped, so copies can tell them
 * from host pointers. */
#define POINTER_ALIGN (UINT64_C(2) << 20)

/* -- bytes ------------------------------------------------------------------------------- */

static uint8_t *bytes_of(const struct alloc *alloc, uint32_t index)
{
	uint64_t size = alloc->device->model->block;
	uint32_t frame = alloc->blocks[index].frame;

	return frame != NO_FRAME ? alloc->device->memory + frame * size
	                         : alloc->host + index * size;
}

static void set_words(uint8_t *to, uint64_t bytes, uint32_t word)
{
	for (uint64_t i = 0; i + sizeof(word) <= bytes; i += sizeof(word))
		memcpy(to + i, &word, sizeof(word));
}

void block_fill(struct alloc *alloc, uint32_t index, uint32_t word)
{
	struct block *block = &alloc->blocks[index];

	block->filled = true;
	block->fill = word;
	block->added = 0;
}

void block_add(struct alloc *alloc, uint32_t index, uint32_t value)
{
	struct block *block = &alloc->blocks[index];

	if (block->filled)
		block->fill += value;
	else
		block->added += value;
}

uint8_t *block_data(struct alloc *alloc, uint32_t index)
{
	struct block *block = &alloc->blocks[index];
	uint64_t size = alloc->device->model->block;
	uint8_t *data = bytes_of(alloc, index);

	if (block->filled)
		set_words(data, size, block->fill);
	if (block->added)
		add_words((uint32_t *)data, size / 4, block->added);
	block->filled = false;
	block->added = 0;
	return data;
}

uint8_t *block_target(struct alloc *alloc, uint32_t index, uint64_t offset, uint64_t bytes)
{
	struct block *block = &alloc->blocks[index];

	if (bytes < alloc->device->model->block)
		return block_data(alloc, index) + offset;
	block->filled = false;
	block->added = 0;
	return bytes_of(alloc, index);
}

void block_read(struct alloc *alloc, uint32_t index, uint64_t offset, uint64_t bytes, uint8_t *to)
{
	const struct block *block = &alloc->blocks[index];

	if (block->filled && offset % sizeof(block->fill) == 0 && bytes % sizeof(block->fill) == 0)
		set_words(to, bytes, block->fill);
	else
		memcpy(to, block_data(alloc, index) + offset, bytes);
}

/* -- frames ------------------------------------------------------------------------------ */

static void release_frame(struct device *device, uint32_t frame)
{
	device->frames[frame] = (struct frame){.stale = true};
}

void block_evict(struct alloc *alloc, uint32_t index, uint64_t *moved_out)
{
	struct device *device = alloc->device;
	uint64_t size = device->model->block;
	struct block *block = &alloc->blocks[index];

	if (block->frame == NO_FRAME)
		return;
	if (block->dirty) {
		memcpy(alloc->host + index * size, block_data(alloc, index), size);
		*moved_out += size;
		device->out_bytes += size;
		alloc->process->account->moved_out += size;
	}
	release_frame(device, block->frame);
	block->frame = NO_FRAME;
	block->dirty = false;
}

/* A free frame, rather one that this machine has memory for already, or the least recently used
 * managed one that nothing pins. */
static uint32_t take_frame(struct device *device, uint64_t *moved_out)
{
	uint32_t oldest = NO_FRAME, unused = NO_FRAME;

	for (uint32_t i = 0; i < device->n_frames; i++) {
		struct frame *frame = &device->frames[i];

		if (frame->stale)
			return i;
		if (!frame->owner) {
			unused = unused == NO_FRAME ? i : unused;
			continue;
		}
		if (frame->owner->managed && !frame->pins &&
		    (oldest == NO_FRAME || frame->used < device->frames[oldest].used))
			oldest = i;
	}
	if (unused != NO_FRAME)
		return unused;
	if (oldest != NO_FRAME)
		block_evict(device->frames[oldest].owner, device->frames[oldest].block, moved_out);
	return oldest;
}

static void place(struct alloc *alloc, uint32_t index, uint32_t frame)
{
	struct device *device = alloc->device;

	device->frames[frame] =
	    (struct frame){.owner = alloc, .block = index, .used = ++device->stamp};
	alloc->blocks[index].frame = frame;
}

/* As a card's driver does, memory that is made has zeros. They are written when somebody reads
 * them, so it is soon made. */
static void place_empty(struct alloc *alloc, uint32_t index, uint32_t frame)
{
	if (alloc->device->frames[frame].stale)
		block_fill(alloc, index, 0);
	place(alloc, index, frame);
}

enum emu_status block_restore(struct alloc *alloc, uint32_t index, uint64_t *moved_in,
                              uint64_t *moved_out)
{
	struct device *device = alloc->device;
	struct block *block = &alloc->blocks[index];
	uint64_t size = device->model->block;
	uint32_t frame;

	if (block->frame != NO_FRAME) {
		device->frames[block->frame].used = ++device->stamp;
		return EMU_OK;
	}
	frame = take_frame(device, moved_out);
	if (frame == NO_FRAME)
		return EMU_OOM;
	if (block->written) {
		memcpy(device->memory + frame * size, alloc->host + index * size, size);
		*moved_in += size;
		device->in_bytes += size;
		place(alloc, index, frame);
	} else {
		/* The block was never touched: nothing crosses the link. */
		place_empty(alloc, index, frame);
	}
	return EMU_OK;
}

/* Plain memory gets all its frames now, and keeps them. */
static enum emu_status take_plain(struct alloc *alloc)
{
	struct device *device = alloc->device;
	uint64_t ignored = 0;

	for (uint32_t i = 0; i < alloc->n_blocks; i++) {
		uint32_t frame;

		if (alloc->blocks[i].frame != NO_FRAME)
			continue;
		frame = take_frame(device, &ignored);
		if (frame == NO_FRAME)
			return EMU_OOM;
		place_empty(alloc, i, frame);
	}
	return EMU_OK;
}

enum emu_status alloc_back(struct alloc *alloc)
{
	/* Pools of the process give up what they keep, to make room. */
	while (take_plain(alloc) != EMU_OK) {
		if (!pools_yield(alloc->process, alloc->device)) {
			alloc_unback(alloc);
			return EMU_OOM;
		}
	}
	return EMU_OK;
}

void alloc_unback(struct alloc *alloc)
{
	for (uint32_t i = 0; i < alloc->n_blocks; i++) {
		struct block *block = &alloc->blocks[i];

		if (block->frame != NO_FRAME)
			release_frame(alloc->device, block->frame);
		*block = (struct block){.frame = NO_FRAME};
	}
}

uint64_t alloc_save(struct alloc *alloc)
{
	uint64_t size = alloc->device->model->block, moved = 0;

	alloc->image = malloc(alloc->n_blocks * size);
	if (!alloc->image)
		abort(); /* an emulator out of host memory has nothing to say */
	for (uint32_t i = 0; i < alloc->n_blocks; i++) {
		struct block *block = &alloc->blocks[i];

		if (block->frame == NO_FRAME)
			continue;
		memcpy(alloc->image + i * size, block_data(alloc, i), size);
		release_frame(alloc->device, block->frame);
		block->frame = NO_FRAME;
		block->saved = true;
		moved += size;
	}
	return moved;
}

uint64_t alloc_saved(const struct alloc *alloc)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < alloc->n_blocks; i++)
		n += alloc->blocks[i].saved;
	return n * alloc->device->model->block;
}

void alloc_load(struct alloc *alloc)
{
	uint64_t size = alloc->device->model->block, moved_out = 0;

	for (uint32_t i = 0; i < alloc->n_blocks; i++) {
		uint32_t frame;

		if (!alloc->blocks[i].saved)
			continue;
		frame = take_frame(alloc->device, &moved_out);
		memcpy(alloc->device->memory + frame * size, alloc->image + i * size, size);
		place(alloc, i, frame);
		alloc->blocks[i].saved = false;
	}
	free(alloc->image);
	alloc->image = NULL;
}

uint64_t blocks_of(const struct device *device, uint64_t size)
{
	uint64_t block = device->model->block;

	return size / block + (size % block != 0);
}

uint64_t take_addresses(uint64_t size, uint64_t alignment)
{
	uint64_t base = emulator.next_pointer;

	if (alignment < POINTER_ALIGN)
		alignment = POINTER_ALIGN;
	base = (base + alignment - 1) / alignment * alignment;
	/* There is a gap behind each, so that no access runs on into the next one. */
	emulator.next_pointer = (base + size + 2 * POINTER_ALIGN) / POINTER_ALIGN * POINTER_ALIGN;
	return base;
}

static bool back_with_host(struct alloc *alloc)
{
	void *host =
	    mmap(NULL, alloc->n_blocks * alloc->device->model->block, PROT_READ | PROT_WRITE,
	         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	alloc->host = host == MAP_FAILED ? NULL : host;
	return alloc->host;
}

/* Makes memory without an address, to which nothing refers yet. */
static enum emu_status make(struct process *process, struct device *device, uint64_t size,
                            enum emu_memory kind, struct alloc **out)
{
	bool managed = kind == EMU_MANAGED;
	uint64_t n = blocks_of(device, size);
	struct alloc *alloc;

	if (!size)
		return EMU_INVALID;
	if (device->oom_once) {
		device->oom_once = false;
		return EMU_OOM;
	}
	if (n > (managed ? 64 : 1) * (uint64_t)device->n_frames)
		return EMU_OOM;
	alloc = calloc(1, sizeof(*alloc) + n * sizeof(alloc->blocks[0]));
	if (!alloc)
		return EMU_OOM;
	*alloc = (struct alloc){.process = process,
	                        .device = device,
	                        .kind = kind,
	                        .id = emulator.next_id++,
	                        .size = size,
	                        .managed = managed,
	                        .n_blocks = (uint32_t)n};
	for (uint64_t i = 0; i < n; i++)
		alloc->blocks[i].frame = NO_FRAME;
	/* Memory of a graph gets its blocks with a launch. */
	if (managed ? !back_with_host(alloc) : kind != EMU_GRAPH && alloc_back(alloc) != EMU_OK) {
		alloc_settle(alloc);
		return EMU_OOM;
	}
	alloc->holders = 1;
	*out = alloc;
	return EMU_OK;
}

enum emu_status alloc_create(struct context *context, uint64_t size, enum emu_memory kind,
                             struct alloc **out)
{
	enum emu_status status = make(context->process, context->device, size, kind, out);

	if (status)
		return status;
	(*out)->base = take_addresses(size, 0);
	(*out)->context = context;
	(*out)->next = context->allocs;
	context->allocs = *out;
	return EMU_OK;
}

enum emu_status alloc_loose(struct process *process, struct device *device, uint64_t size,
                            enum emu_memory kind, struct alloc **out)
{
	enum emu_status status = make(process, device, size, kind, out);

	if (status)
		return status;
	(*out)->next = process->allocs;
	process->allocs = *out;
	return EMU_OK;
}

bool alloc_pinned(const struct alloc *alloc)
{
	for (uint32_t i = 0; i < alloc->n_blocks; i++)
		if (alloc->blocks[i].frame != NO_FRAME &&
		    alloc->device->frames[alloc->blocks[i].frame].pins)
			return true;
	return false;
}

void alloc_settle(struct alloc *alloc)
{
	struct device *device = alloc->device;

	if (alloc->holders || alloc->mappings || alloc->imports)
		return;
	alloc_unback(alloc);
	if (alloc->host)
		munmap(alloc->host, alloc->n_blocks * device->model->block);
	free(alloc->image);
	free(alloc);
}

static void unlink_from(struct alloc **list, const struct alloc *alloc)
{
	for (struct alloc **at = list; *at; at = &(*at)->next) {
		if (*at == alloc) {
			*at = alloc->next;
			return;
		}
	}
}

void alloc_free(struct alloc *alloc)
{
	unlink_from(alloc->context ? &alloc->context->allocs : &alloc->process->allocs, alloc);
	if (alloc->pool)
		pool_forget(alloc);
	if (alloc->kind == EMU_GRAPH)
		graph_forget(alloc);
	alloc->context = NULL;
	alloc->holders = 0;
	if (alloc->mappings || alloc->imports)
		alloc->process = NULL; /* mappings of other processes count for none */
	alloc_settle(alloc);
}

static bool fill_range(struct range *out, struct alloc *alloc, struct mapping *mapping,
                       uint64_t pointer)
{
	uint64_t base = mapping ? mapping->base : alloc->base;
	uint64_t size = mapping ? mapping->size : alloc->size;

	if (!base || alloc->idle || pointer < base || pointer - base >= size)
		return false;
	*out = (struct range){.alloc = alloc,
	                      .mapping = mapping,
	                      .base = base,
	                      .size = size,
	                      .offset = pointer - base + (mapping ? mapping->offset : 0),
	                      .bytes = size - (pointer - base)};
	return true;
}

/* Contexts of one process reach each other's memory. */
bool range_at(const struct process *process, uint64_t pointer, struct range *out)
{
	for (struct context *c = process->contexts; c; c = c->next)
		for (struct alloc *a = c->allocs; a; a = a->next)
			if (fill_range(out, a, NULL, pointer))
				return true;
	for (struct alloc *a = process->allocs; a; a = a->next)
		if (fill_range(out, a, NULL, pointer))
			return true;
	for (struct mapping *m = process->mappings; m; m = m->next)
		if (fill_range(out, m->alloc, m, pointer))
			return true;
	return false;
}

struct alloc *alloc_find(const struct process *process, uint64_t pointer)
{
	struct range range;

	return range_at(process, pointer, &range) && !range.mapping ? range.alloc : NULL;
}

uint64_t device_free_bytes(const struct device *device)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < device->n_frames; i++)
		n += !device->frames[i].owner;
	return n * device->model->block;
}

uint64_t process_plain(const struct process *process, const struct device *device)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < device->n_frames; i++) {
		const struct alloc *owner = device->frames[i].owner;

		n += owner && !owner->managed && owner->process == process;
	}
	return n * device->model->block;
}
