/* vmm.c: physical memory that the program creates and maps by itself.
 *
 * It is plain, since the program chose where it lives, and is counted: from its
 * creation until its handle is released and nothing maps it any more.
 *
 * With memory:swap what can be moved gets a handle of ours, as the driver's is
 * another one whenever it comes back. It is swapped (a block, see swap.h) while it
 * is mapped once, whole, and its own device may write it; otherwise, and from the
 * moment that others may know it (KEEPS in hooks.def), it stays. What concerns the driver's
 * mapping or handle of a block first takes the block back: it waits for its memory.
 */
#include "vmm.h"
#include "swap.h"

#include <search.h>
#include <stdlib.h>
#include <unistd.h>

#define OURS (UINT64_C(1) << 63) /* no handle of the driver's */

/* refs: how often the handle must be released; maps: places where it is mapped. */
struct physical {
	CUmemGenericAllocationHandle handle;
	size_t size;
	CUdevice device;
	unsigned int refs, maps;
	/* Of ours alone: */
	bool stays;
	bool written;            /* it has been mapped */
	struct mapping *swapped; /* a block has the driver's handles */
	CUmemAllocationProp prop;
	unsigned int n;
	CUmemGenericAllocationHandle pieces[]; /* the driver's handles */
};

struct mapping {
	CUdeviceptr base;
	size_t size;
	struct physical *physical;
	struct block *block;
	uint64_t access; /* devices that may read and write it, a bit each */
	bool odd;        /* somebody may only read it, or it is none of our devices */
};

static void *by_handle, *by_base; /* trees of search.h */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t n_ours;

static int compare_handles(const void *a, const void *b)
{
	const struct physical *x = a, *y = b;

	return (x->handle > y->handle) - (x->handle < y->handle);
}

/* Mappings do not overlap; a key that lies in one is equal to it. */
static int compare_bases(const void *a, const void *b)
{
	const struct mapping *x = a, *y = b;

	return x->base + x->size <= y->base ? -1 : x->base >= y->base + y->size;
}

/* -- what there is; the lock is held in these ------------------------------------ */

static struct physical *find_physical(CUmemGenericAllocationHandle handle)
{
	struct physical key = {.handle = handle};
	void *node = tfind(&key, &by_handle, compare_handles);

	return node ? *(struct physical **)node : NULL;
}

/* Of which the address is anywhere. */
static struct mapping *find_mapping(CUdeviceptr address)
{
	struct mapping key = {.base = address, .size = 1};
	void *node = tfind(&key, &by_base, compare_bases);

	return node ? *(struct mapping **)node : NULL;
}

static bool ours(const struct physical *physical)
{
	return physical && physical->handle & OURS;
}

static void release_pieces(struct physical *physical)
{
	while (physical->n)
		DRIVER(cuMemRelease)(physical->pieces[--physical->n]);
}

static void drop_if_unused(struct physical *physical)
{
	if (physical->refs || physical->maps)
		return;
	release_pieces(physical);
	memory_count(physical->device, MEMORY_FIXED, -(int64_t)physical->size);
	free(physical);
}

/* A released handle's number may come again while its memory is still mapped. */
static void released(struct physical *physical)
{
	if (--physical->refs == 0)
		tdelete(physical, &by_handle, compare_handles);
	drop_if_unused(physical);
}

static struct mapping *add_mapping(CUdeviceptr base, size_t size, struct physical *physical)
{
	struct mapping *mapping = physical ? calloc(1, sizeof(*mapping)) : NULL;

	if (!mapping)
		return NULL;
	*mapping = (struct mapping){.base = base, .size = size, .physical = physical};
	if (!tsearch(mapping, &by_base, compare_bases)) {
		free(mapping);
		return NULL;
	}
	physical->maps++;
	return mapping;
}

/* One call may end several mappings that stand side by side. */
static void remove_mappings(CUdeviceptr base, size_t size)
{
	CUdeviceptr end = base + size;
	struct mapping *mapping;

	while (base < end && (mapping = find_mapping(base))) {
		base = mapping->base + mapping->size;
		tdelete(mapping, &by_base, compare_bases);
		mapping->physical->maps--;
		drop_if_unused(mapping->physical);
		free(mapping);
	}
}

/* -- to and from blocks; the lock is held ------------------------------------------ */

static bool can_move(const struct mapping *mapping)
{
	const struct physical *physical = mapping->physical;

	return ours(physical) && !physical->stays && physical->maps == 1 && !mapping->odd &&
	       mapping->size == physical->size && mapping->access >> physical->device & 1;
}

static void lend(struct mapping *mapping)
{
	struct physical *physical = mapping->physical;

	/* The daemon may see less for a moment, but never more than there is. */
	memory_count(physical->device, MEMORY_FIXED, -(int64_t)physical->size);
	mapping->block = block_adopt(mapping->base, mapping->size, physical->device,
	                             &physical->prop, physical->pieces, mapping->access);
	if (!mapping->block)
		memory_count(physical->device, MEMORY_FIXED, (int64_t)physical->size);
	else
		physical->swapped = mapping;
}

static bool take_back(struct mapping *mapping)
{
	struct physical *physical = mapping->physical;

	if (!block_return(mapping->block, physical->pieces))
		return false;
	mapping->block = NULL;
	physical->swapped = NULL;
	memory_count(physical->device, MEMORY_FIXED, (int64_t)physical->size);
	return true;
}

static bool take_back_range(CUdeviceptr base, size_t size)
{
	struct mapping *mapping;

	for (CUdeviceptr at = base; at - base < size && (mapping = find_mapping(at));
	     at = mapping->base + mapping->size)
		if (mapping->block && !take_back(mapping))
			return false;
	return true;
}

/* The lock is not held: what is away must come first. */
static CUresult have_range(CUdeviceptr base, size_t size)
{
	uint64_t start = now_ns();

	for (;;) {
		bool all;

		pthread_mutex_lock(&lock);
		all = take_back_range(base, size);
		pthread_mutex_unlock(&lock);
		if (all)
			return CUDA_SUCCESS;
		if (now_ns() - start > ROOM_NS) /* a call in a call may not wait for its memory */
			return CUDA_ERROR_NOT_READY;
		TRY(gate_look());
		pthread_mutex_lock(&lock);
		all = take_back_range(base, size);
		pthread_mutex_unlock(&lock);
		gate_leave();
		if (all)
			return CUDA_SUCCESS;
		usleep(ROOM_PAUSE_US);
	}
}

/* -- handles ------------------------------------------------------------------------- */

/* These let others reach device memory by its address, and we hear nothing of it. */
static bool reached_unseen(void)
{
	static const char *const modules[] = {"/sys/module/nvidia_peermem",
	                                      "/sys/module/nv_peer_mem", "/sys/module/gdrdrv",
	                                      "/sys/module/nvidia_fs"};

	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
		if (!access(modules[i], F_OK))
			return true;
	return false;
}

/* An object that could be exported must be one of the driver's too. */
static bool shall_move(size_t size, const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUdevice device = prop->location.id;

	if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || flags || !swap_serves(device))
		return false;
	if (prop->allocFlags.compressionType || prop->allocFlags.usage || prop->win32HandleMetaData)
		return false;
	if (prop->allocFlags.gpuDirectRDMACapable && reached_unseen())
		return false;
	return size && size % swap_devices[device].unit == 0 &&
	       (!prop->requestedHandleTypes || size <= swap_devices[device].piece);
}

/* Of `rest` bytes that are still to come: so much room is asked for, if there is none. */
static CUresult create_piece(struct physical *physical, size_t size, size_t rest)
{
	CUmemGenericAllocationHandle *handle = &physical->pieces[physical->n];

	NEED(cuMemCreate);
	TRY_WITH_ROOM(physical->device, rest, real(handle, size, &physical->prop, 0));
	physical->n++;
	memory_count(physical->device, MEMORY_FIXED, (int64_t)size);
	return CUDA_SUCCESS;
}

static CUresult create_pieces(struct physical *physical)
{
	size_t piece = swap_devices[physical->device].piece, rest = physical->size;
	CUresult result = CUDA_SUCCESS;

	while (rest && !result) {
		size_t size = rest < piece ? rest : piece;

		result = create_piece(physical, size, rest);
		if (!result)
			rest -= size;
	}
	if (result) {
		release_pieces(physical);
		memory_count(physical->device, MEMORY_FIXED, -(int64_t)(physical->size - rest));
	}
	return result;
}

static bool enter(struct physical *physical)
{
	bool entered;

	pthread_mutex_lock(&lock);
	if (!physical->handle)
		physical->handle = OURS | ++n_ours;
	entered = tsearch(physical, &by_handle, compare_handles) != NULL;
	pthread_mutex_unlock(&lock);
	return entered;
}

static CUresult create_ours(CUmemGenericAllocationHandle *handle, size_t size,
                            const CUmemAllocationProp *prop)
{
	size_t n = size / swap_devices[prop->location.id].piece + 1;
	struct physical *physical = calloc(1, sizeof(*physical) + n * sizeof(*handle));
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (!physical)
		return result;
	physical->size = size;
	physical->device = prop->location.id;
	physical->refs = 1;
	physical->prop = *prop;
	result = create_pieces(physical);
	if (result) {
		free(physical);
		return result;
	}
	if (!enter(physical)) { /* the host is out of memory */
		physical->refs = 0;
		drop_if_unused(physical);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*handle = physical->handle;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
	bool counted = prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	struct physical *physical;

	NEED(cuMemCreate);
	if (!counted || !handle)
		return real(handle, size, prop, flags);
	TRY(memory_room(size, prop->location.id));
	if (shall_move(size, prop, flags))
		return create_ours(handle, size, prop);
	TRY_WITH_ROOM(prop->location.id, size, real(handle, size, prop, flags));
	physical = calloc(1, sizeof(*physical));
	if (!physical)
		return CUDA_SUCCESS; /* it is not counted */
	physical->handle = *handle;
	physical->size = size;
	physical->device = prop->location.id;
	physical->refs = 1;
	if (enter(physical))
		memory_count(physical->device, MEMORY_FIXED, (int64_t)size);
	else
		free(physical);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	struct swap_place place;
	struct mapping *mapping;
	struct physical *physical;
	CUresult result = CUDA_SUCCESS;

	NEED(cuMemRetainAllocationHandle);
	/* As of any allocation that was not made by cuMemCreate. */
	if (swap_find((CUdeviceptr)address, &place))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	mapping = find_mapping((CUdeviceptr)address);
	physical = mapping && ours(mapping->physical) ? mapping->physical : NULL;
	if (physical && !physical->refs && !tsearch(physical, &by_handle, compare_handles))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	else if (physical)
		*handle = physical->handle;
	else
		result = real(handle, address);
	if (!result && !physical)
		physical = find_physical(*handle);
	if (!result && physical)
		physical->refs++;
	pthread_mutex_unlock(&lock);
	return result;
}

/* The lock is held over the driver's call: the number may come again at once. */
EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct physical *physical;
	CUresult result;

	NEED(cuMemRelease);
	pthread_mutex_lock(&lock);
	physical = find_physical(handle);
	result = ours(physical) ? CUDA_SUCCESS : real(handle);
	if (!result && physical)
		released(physical);
	pthread_mutex_unlock(&lock);
	return result;
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                       CUmemGenericAllocationHandle handle)
{
	struct physical *physical;
	bool known;

	NEED(cuMemGetAllocationPropertiesFromHandle);
	pthread_mutex_lock(&lock);
	physical = find_physical(handle);
	known = ours(physical) && prop;
	if (known)
		*prop = physical->prop;
	pthread_mutex_unlock(&lock);
	return known ? CUDA_SUCCESS : real(prop, handle);
}

/* Where its only mapping is swapped. */
static struct mapping swapped_mapping(CUmemGenericAllocationHandle handle, bool stays)
{
	struct mapping none = {0};
	struct physical *physical;

	pthread_mutex_lock(&lock);
	physical = find_physical(handle);
	if (ours(physical) && stays)
		physical->stays = true;
	if (ours(physical) && physical->swapped)
		none = *physical->swapped;
	pthread_mutex_unlock(&lock);
	return none;
}

/* For what a driver does with whole objects only. Nothing is in it yet. */
static CUresult make_whole(struct physical *physical)
{
	CUmemGenericAllocationHandle whole;

	if (physical->n == 1)
		return CUDA_SUCCESS;
	if (physical->written)
		return CUDA_ERROR_NOT_SUPPORTED;
	release_pieces(physical);
	TRY(DRIVER(cuMemCreate)(&whole, physical->size, &physical->prop, 0));
	physical->pieces[0] = whole;
	physical->n = 1;
	physical->stays = true;
	return CUDA_SUCCESS;
}

CUresult vmm_keep(CUmemGenericAllocationHandle *handle)
{
	struct mapping swapped = swapped_mapping(*handle, true);
	struct physical *physical;
	CUresult result = CUDA_SUCCESS;

	TRY(have_range(swapped.base, swapped.size));
	pthread_mutex_lock(&lock);
	physical = find_physical(*handle);
	if (ours(physical))
		result = make_whole(physical);
	if (ours(physical) && !result)
		*handle = physical->pieces[0];
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult vmm_keep_range(CUdeviceptr base, size_t size)
{
	struct mapping *mapping;

	pthread_mutex_lock(&lock);
	for (CUdeviceptr at = base; at - base < size && (mapping = find_mapping(at));
	     at = mapping->base + mapping->size)
		mapping->physical->stays = true;
	pthread_mutex_unlock(&lock);
	return have_range(base, size);
}

/* -- mappings -------------------------------------------------------------------------- */

static CUresult map_pieces(const struct physical *physical, CUdeviceptr base,
                           unsigned long long flags)
{
	size_t piece = swap_devices[physical->device].piece, done = 0;
	CUresult result = CUDA_SUCCESS;

	for (unsigned int i = 0; i < physical->n && !result; i++) {
		size_t rest = physical->size - done;
		size_t size = physical->n > 1 && rest > piece ? piece : rest;

		result = DRIVER(cuMemMap)(base + done, size, 0, physical->pieces[i], flags);
		if (!result)
			done += size;
	}
	if (result && done)
		DRIVER(cuMemUnmap)(base, done);
	return result;
}

static CUresult map_ours(struct physical *physical, CUdeviceptr base, size_t size, size_t offset,
                         unsigned long long flags)
{
	if (physical->n && !offset && size == physical->size)
		return map_pieces(physical, base, flags);
	TRY(make_whole(physical)); /* mapped in parts */
	return DRIVER(cuMemMap)(base, size, offset, physical->pieces[0], flags);
}

EXPORT CUresult cuMemMap(CUdeviceptr base, size_t size, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct mapping swapped = swapped_mapping(handle, false);
	struct physical *physical;
	CUresult result;

	NEED(cuMemMap);
	TRY(have_range(swapped.base, swapped.size)); /* it is mapped twice then */
	pthread_mutex_lock(&lock);
	physical = find_physical(handle);
	result = ours(physical) ? map_ours(physical, base, size, offset, flags)
	                        : real(base, size, offset, handle, flags);
	if (!result && ours(physical))
		physical->written = true;
	if (!result && !add_mapping(base, size, physical) && ours(physical)) {
		DRIVER(cuMemUnmap)(base, size);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

static void note_access(struct mapping *mapping, const CUmemAccessDesc *desc, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int d = desc[i].location.id;

		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || d < 0 ||
		    d >= MAX_DEVICES || desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) {
			mapping->odd = true;
			continue;
		}
		mapping->access &= ~(UINT64_C(1) << d);
		if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			mapping->access |= UINT64_C(1) << d;
	}
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr base, size_t size, const CUmemAccessDesc *desc, size_t n)
{
	struct mapping *mapping;
	CUresult result;

	NEED(cuMemSetAccess);
	TRY(have_range(base, size));
	pthread_mutex_lock(&lock);
	result = real(base, size, desc, n);
	for (CUdeviceptr at = base; !result && at - base < size && (mapping = find_mapping(at));
	     at = mapping->base + mapping->size) {
		note_access(mapping, desc, n);
		if (can_move(mapping))
			lend(mapping);
	}
	pthread_mutex_unlock(&lock);
	return result;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr base, size_t size)
{
	struct swap_place place;
	CUresult result;

	NEED(cuMemUnmap);
	if (swap_find(base, &place))
		return CUDA_ERROR_INVALID_VALUE;
	TRY(have_range(base, size));
	pthread_mutex_lock(&lock);
	result = real(base, size);
	if (!result)
		remove_mappings(base, size);
	pthread_mutex_unlock(&lock);
	return result;
}

/* Sparse arrays: what they are given they keep. */
static CUresult map_array(__typeof__(&cuMemMapArrayAsync) real, const CUarrayMapInfo *list,
                          unsigned int n, CUstream stream)
{
	CUarrayMapInfo *mine = malloc(n * sizeof(*mine));
	CUresult result = mine ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	for (unsigned int i = 0; i < n && !result; i++) {
		mine[i] = list[i];
		if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP)
			result = vmm_keep(&mine[i].memHandle.memHandle);
	}
	if (!result)
		result = gate_enter(stream);
	if (!result) {
		result = real(mine, n, stream);
		gate_leave();
	}
	free(mine);
	return result;
}

EXPORT CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int n, CUstream stream)
{
	NEED(cuMemMapArrayAsync);
	return list && n ? map_array(real, list, n, stream) : real(list, n, stream);
}

EXPORT CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned int n, CUstream stream)
{
	NEED(cuMemMapArrayAsync_ptsz);
	return list && n ? map_array(real, list, n, PER_THREAD(stream)) : real(list, n, stream);
}

void vmm_after_fork(void)
{
	pthread_mutex_init(&lock, NULL);
	by_handle = by_base = NULL; /* the parent's */
}
