/* engine_memory.c: frames of device memory, plain and managed allocations, LRU eviction.
 *
 * Plain memory keeps its frames until it is freed. Managed memory has a host
 * copy; its blocks come to the device when touched or prefetched and leave it,
 * least recently used first and whoever owns them, when room is needed.
 */
#include "engine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Device pointers are numbers that no process has mapped, so copies can tell them. */
#define POINTER_ALIGN (UINT64_C(2) << 20)

static struct device *device_of(const struct alloc *alloc)
{
	return alloc->context->device;
}

uint8_t *block_data(const struct alloc *alloc, uint32_t index)
{
	uint64_t size = device_of(alloc)->model->block;
	uint32_t frame = alloc->blocks[index].frame;

	return frame != NO_FRAME ? device_of(alloc)->memory + frame * size
	                         : alloc->host + index * size;
}

void block_evict(struct alloc *alloc, uint32_t index, uint64_t *moved_out)
{
	struct device *device = device_of(alloc);
	uint64_t size = device->model->block;
	struct block *block = &alloc->blocks[index];

	if (block->frame == NO_FRAME)
		return;
	if (block->dirty) {
		memcpy(alloc->host + index * size, device->memory + block->frame * size, size);
		*moved_out += size;
		device->out_bytes += size;
		alloc->context->process->account->moved_out += size;
	}
	device->frames[block->frame] = (struct frame){0};
	block->frame = NO_FRAME;
	block->dirty = false;
}

/* A free frame, or the least recently used managed one that nothing pins. */
static uint32_t take_frame(struct device *device, uint64_t *moved_out)
{
	uint32_t oldest = NO_FRAME;

	for (uint32_t i = 0; i < device->n_frames; i++) {
		struct frame *frame = &device->frames[i];

		if (!frame->owner)
			return i;
		if (frame->owner->managed && !frame->pins &&
		    (oldest == NO_FRAME || frame->used < device->frames[oldest].used))
			oldest = i;
	}
	if (oldest != NO_FRAME)
		block_evict(device->frames[oldest].owner, device->frames[oldest].block, moved_out);
	return oldest;
}

static void place(struct alloc *alloc, uint32_t index, uint32_t frame)
{
	struct device *device = device_of(alloc);

	device->frames[frame] =
	    (struct frame){.owner = alloc, .block = index, .used = ++device->stamp};
	alloc->blocks[index].frame = frame;
}

enum emu_status block_restore(struct alloc *alloc, uint32_t index, uint64_t *moved_in,
                              uint64_t *moved_out)
{
	struct device *device = device_of(alloc);
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
	} else {
		/* Never touched: a zeroed frame, nothing crosses the link. */
		memset(device->memory + frame * size, 0, size);
	}
	place(alloc, index, frame);
	return EMU_OK;
}

/* Plain memory takes all its frames now, and nobody takes them back. */
static enum emu_status take_plain(struct alloc *alloc)
{
	struct device *device = device_of(alloc);
	uint64_t ignored = 0;

	for (uint32_t i = 0; i < alloc->n_blocks; i++) {
		uint32_t frame = take_frame(device, &ignored);

		if (frame == NO_FRAME)
			return EMU_OOM;
		memset(device->memory + frame * device->model->block, 0, device->model->block);
		place(alloc, i, frame);
	}
	return EMU_OK;
}

enum emu_status alloc_create(struct context *context, uint64_t size, bool managed,
                             struct alloc **out)
{
	struct device *device = context->device;
	uint64_t block = device->model->block;
	uint64_t n = size / block + (size % block != 0);
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
	*alloc = (struct alloc){
	    .context = context, .size = size, .managed = managed, .n_blocks = (uint32_t)n};
	for (uint64_t i = 0; i < n; i++)
		alloc->blocks[i].frame = NO_FRAME;
	if (managed) {
		alloc->host = mmap(NULL, n * block, PROT_READ | PROT_WRITE,
		                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (alloc->host == MAP_FAILED)
			alloc->host = NULL;
	}
	if (managed ? !alloc->host : take_plain(alloc) != EMU_OK) {
		alloc_free(alloc);
		return EMU_OOM;
	}
	alloc->base = emulator.next_pointer;
	emulator.next_pointer += (n * block + POINTER_ALIGN) / POINTER_ALIGN * POINTER_ALIGN;
	alloc->next = context->allocs;
	context->allocs = alloc;
	*out = alloc;
	return EMU_OK;
}

void alloc_free(struct alloc *alloc)
{
	struct device *device = device_of(alloc);

	for (struct alloc **at = &alloc->context->allocs; *at; at = &(*at)->next) {
		if (*at == alloc) {
			*at = alloc->next;
			break;
		}
	}
	for (uint32_t i = 0; i < alloc->n_blocks; i++)
		if (alloc->blocks[i].frame != NO_FRAME)
			device->frames[alloc->blocks[i].frame] = (struct frame){0};
	if (alloc->host)
		munmap(alloc->host, alloc->n_blocks * device->model->block);
	free(alloc);
}

/* Any allocation of the process: contexts of one process see each other's memory. */
struct alloc *alloc_find(const struct context *context, uint64_t pointer, uint64_t size)
{
	for (struct context *c = context->process->contexts; c; c = c->next)
		for (struct alloc *a = c->allocs; a; a = a->next)
			if (pointer >= a->base && pointer - a->base < a->size &&
			    size <= a->size - (pointer - a->base))
				return a;
	return NULL;
}

uint64_t device_free_bytes(const struct device *device)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < device->n_frames; i++)
		n += !device->frames[i].owner;
	return n * device->model->block;
}

uint64_t process_resident(const struct process *process, const struct device *device)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < device->n_frames; i++) {
		const struct alloc *owner = device->frames[i].owner;

		n += owner && owner->context->process == process;
	}
	return n * device->model->block;
}
