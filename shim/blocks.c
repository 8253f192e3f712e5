/* blocks.c: blocks of addresses and the segments they consist of. */
#include "swap.h"

#include <search.h>
#include <stdlib.h>
#include <unistd.h>

pthread_mutex_t swap_lock = PTHREAD_MUTEX_INITIALIZER;
struct swap_device swap_devices[MAX_DEVICES];
bool swap_held;

static void *blocks; /* a tree of search.h, by address */
static unsigned long n_blocks;
static atomic_bool used; /* there has been a block */

bool swap_used(void)
{
	return atomic_load_explicit(&used, memory_order_acquire);
}

CUmemAllocationProp segment_properties(CUdevice device)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};

	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = device;
	return prop;
}

/* -- segments ------------------------------------------------------------------ */

CUresult segments_allow(CUdeviceptr base, size_t size, uint64_t devices)
{
	CUmemAccessDesc access[MAX_DEVICES] = {0};
	size_t n = 0;

	for (int d = 0; d < MAX_DEVICES; d++) {
		if (!(devices >> d & 1))
			continue;
		access[n].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
		access[n].location.id = d;
		access[n++].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	}
	return REAL(cuMemSetAccess)(base, size, access, n);
}

static CUresult place(struct segment *segment)
{
	CUmemAllocationProp prop = segment_properties(segment->block->device);
	CUresult result;

	TRY(DRIVER(cuMemCreate)(&segment->handle, segment->size, &prop, 0));
	result = DRIVER(cuMemMap)(segment->base, segment->size, 0, segment->handle, 0);
	if (result)
		DRIVER(cuMemRelease)(segment->handle);
	return result;
}

/* Access is given for all of them at once: beside copies a driver takes half a
 * millisecond for that, however much it is. */
unsigned int segments_bring(struct segment *last, unsigned int n, CUresult *result)
{
	struct block *block = last->block;
	struct swap_device *d = &swap_devices[block->device];
	struct segment *first = last + 1;
	CUresult allowed;
	size_t size = 0;

	for (*result = CUDA_SUCCESS; n && !*result; n--) {
		*result = place(first - 1);
		if (!*result)
			size += (--first)->size;
	}
	if (!size)
		return 0;
	allowed = segments_allow(first->base, size, d->peers | UINT64_C(1) << block->device);
	if (!allowed) {
		d->resident += size;
		return (unsigned int)(last - first) + 1;
	}
	*result = allowed;
	while (first <= last)
		segment_leave(first++);
	return 0;
}

void segment_leave(struct segment *segment)
{
	DRIVER(cuMemUnmap)(segment->base, segment->size);
	DRIVER(cuMemRelease)(segment->handle);
}

void segment_landed(struct segment *segment)
{
	segment->state = SEGMENT_RESIDENT;
	segment->calls = gate_submitted();
	if (!segment->block->doomed)
		swap_devices[segment->block->device].missing--;
}

void segment_left(struct segment *segment, enum segment_state state)
{
	struct swap_device *d = &swap_devices[segment->block->device];

	segment->state = state;
	d->resident -= segment->size;
	if (!segment->block->doomed)
		d->missing++;
}

void segment_fix(struct segment *segment, bool fixed)
{
	struct swap_device *d = &swap_devices[segment->block->device];

	if (segment->fixed != fixed)
		d->fixed += fixed ? segment->size : -segment->size;
	segment->fixed = fixed;
}

void segment_moves(struct segment *segment)
{
	segment->moving = true;
	swap_devices[segment->block->device].moving++;
	segment->block->n_moving++;
}

struct block *segment_moved(struct segment *segment)
{
	struct block *block = segment->block;

	segment->moving = false;
	swap_devices[block->device].moving--;
	return --block->n_moving == 0 && block->doomed ? block : NULL;
}

static void link_newest(struct segment *segment, struct swap_device *d)
{
	segment->older = d->newest;
	if (d->newest)
		d->newest->newer = segment;
	else
		d->oldest = segment;
	d->newest = segment;
	d->missing++;
}

static void unlink_segment(struct segment *segment, struct swap_device *d)
{
	*(segment->older ? &segment->older->newer : &d->oldest) = segment->newer;
	*(segment->newer ? &segment->newer->older : &d->newest) = segment->older;
	if (d->next_out == segment)
		d->next_out = segment->newer;
	if (d->next_in == segment)
		d->next_in = segment->older;
	if (segment->state != SEGMENT_RESIDENT)
		d->missing--;
	segment_fix(segment, false);
}

/* -- blocks -------------------------------------------------------------------- */

/* Blocks do not overlap; a key that lies in one is equal to it. */
static int compare(const void *a, const void *b)
{
	const struct block *x = a, *y = b;

	return x->base + x->size <= y->base ? -1 : x->base >= y->base + y->size;
}

/* The lock is swap_held. */
struct block *block_find(CUdeviceptr pointer)
{
	struct block key = {.base = pointer, .size = 1};
	void *node = tfind(&key, &blocks, compare);

	return node ? *(struct block **)node : NULL;
}

static struct block *new_block(CUdeviceptr base, size_t size, CUdevice device)
{
	size_t piece = swap_devices[device].piece, n = (size + piece - 1) / piece;
	struct block *block = calloc(1, sizeof(*block) + n * sizeof(block->segments[0]));

	if (!block)
		return NULL;
	block->base = base;
	block->size = size;
	block->device = device;
	block->n = (unsigned int)n;
	for (size_t i = 0; i < n; i++) {
		struct segment *segment = &block->segments[i];

		segment->block = block;
		segment->base = base + i * piece;
		segment->size = size - i * piece < piece ? size - i * piece : piece;
		segment->calls = SWAP_DIRTY;
	}
	return block;
}

/* Addresses and nothing behind them yet. size: whole units. */
static CUresult make_block(size_t size, CUdevice device, struct block **out)
{
	struct swap_device *d = &swap_devices[device];
	CUdeviceptr base;
	struct block *block;

	TRY(memory_room(size, device));
	TRY(REAL(cuMemAddressReserve)(&base, size, 0, 0, 0));
	block = new_block(base, size, device);
	pthread_mutex_lock(&swap_lock);
	if (!block || !tsearch(block, &blocks, compare)) {
		pthread_mutex_unlock(&swap_lock);
		REAL(cuMemAddressFree)(base, size);
		free(block);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	block->number = n_blocks++;
	for (unsigned int i = 0; i < block->n; i++)
		link_newest(&block->segments[i], d);
	d->bytes += size;
	atomic_store(&used, true);
	atomic_store(&gate_memory, swap_held ? GATE_MEMORY_HERE : GATE_MEMORY_AWAY);
	pthread_mutex_unlock(&swap_lock);
	client_memory_changed();
	*out = block;
	return CUDA_SUCCESS;
}

/* The lock is swap_held; block_end() follows without it. */
void block_forget(struct block *block)
{
	tdelete(block, &blocks, compare);
	for (unsigned int i = 0; i < block->n; i++)
		unlink_segment(&block->segments[i], &swap_devices[block->device]);
	block->doomed = true;
}

/* Nobody knows it any more. What still moves is waited for: whoever moved it comes again. */
void block_end(struct block *block)
{
	struct swap_device *d = &swap_devices[block->device];
	uint64_t resident = 0;

	for (unsigned int i = 0; i < block->n; i++) {
		struct segment *segment = &block->segments[i];

		if (segment->state == SEGMENT_RESIDENT) {
			segment_leave(segment);
			resident += segment->size;
		}
		if (segment->copy)
			arena_give(segment->copy);
	}
	REAL(cuMemAddressFree)(block->base, block->size);
	pthread_mutex_lock(&swap_lock);
	d->bytes -= block->size;
	d->resident -= resident;
	pthread_mutex_unlock(&swap_lock);
	free(block);
	client_memory_changed();
}

void block_drop(struct block *block)
{
	bool moves;

	pthread_mutex_lock(&swap_lock);
	block_forget(block);
	moves = block->n_moving;
	pthread_mutex_unlock(&swap_lock);
	if (!moves)
		block_end(block);
}

/* Physical memory for a new segment, if the process may have it now. */
static CUresult back_segment(struct segment *segment)
{
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&swap_lock);
	if (swap_held && segment->state != SEGMENT_RESIDENT && !segment->moving) {
		if (segments_bring(segment, 1, &result)) {
			segment_landed(segment);
			segment->calls = SWAP_DIRTY; /* the gate is open */
		}
	}
	pthread_mutex_unlock(&swap_lock);
	return result;
}

/* Within the limit there is room as soon as others have left; what they still
 * have the daemon sees from what we report. */
static CUresult back_block(struct block *block)
{
	uint64_t start = now_ns();
	CUresult result = CUDA_SUCCESS;

	for (unsigned int i = 0; i < block->n && !result; i++) {
		result = back_segment(&block->segments[i]);
		if (result == CUDA_ERROR_OUT_OF_MEMORY)
			ordered_trim(NULL, 0, false);
		while (result == CUDA_ERROR_OUT_OF_MEMORY && now_ns() - start < ROOM_NS) {
			client_memory_changed();
			usleep(ROOM_PAUSE_US);
			result = back_segment(&block->segments[i]);
		}
	}
	client_memory_changed();
	return result;
}

CUresult block_make(size_t size, CUdevice device, struct block **out)
{
	CUresult result;

	TRY(make_block(size, device, out));
	result = back_block(*out);
	if (result)
		block_drop(*out);
	return result;
}

void blocks_after_fork(void)
{
	pthread_mutex_init(&swap_lock, NULL);
	for (int d = 0; d < MAX_DEVICES; d++)
		swap_devices[d] = (struct swap_device){0};
	swap_held = false;
	blocks = NULL; /* the parent's */
	atomic_store(&used, false);
}
