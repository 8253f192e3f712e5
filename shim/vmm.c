/* vmm.c: physical memory that the program creates and maps by itself.
 *
 * It stays plain, since the program chose where it lives, and is counted: from
 * its creation until its handle is released and nothing maps it any more.
 */
#include "memory.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>

/* refs: how often the handle must be released; maps: places where it is mapped. */
struct physical {
	CUmemGenericAllocationHandle handle;
	size_t size;
	CUdevice device;
	unsigned int refs, maps;
};

struct mapping {
	CUdeviceptr base;
	size_t size;
	struct physical *physical;
};

static void *by_handle, *by_base; /* trees of search.h */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int compare_handles(const void *a, const void *b)
{
	const struct physical *x = a, *y = b;

	return (x->handle > y->handle) - (x->handle < y->handle);
}

static int compare_bases(const void *a, const void *b)
{
	const struct mapping *x = a, *y = b;

	return (x->base > y->base) - (x->base < y->base);
}

/* The lock is held in these. */
static struct physical *find_physical(CUmemGenericAllocationHandle handle)
{
	struct physical key = {.handle = handle};
	void *node = tfind(&key, &by_handle, compare_handles);

	return node ? *(struct physical **)node : NULL;
}

static struct mapping *find_mapping(CUdeviceptr base)
{
	struct mapping key = {.base = base};
	void *node = tfind(&key, &by_base, compare_bases);

	return node ? *(struct mapping **)node : NULL;
}

static void drop_if_unused(struct physical *physical)
{
	if (physical->refs || physical->maps)
		return;
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

static void created(CUmemGenericAllocationHandle handle, size_t size, CUdevice device)
{
	struct physical *physical = malloc(sizeof(*physical));

	if (!physical)
		return;
	*physical = (struct physical){handle, size, device, 1, 0};
	pthread_mutex_lock(&lock);
	if (tsearch(physical, &by_handle, compare_handles))
		memory_count(device, MEMORY_FIXED, (int64_t)size);
	pthread_mutex_unlock(&lock);
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
	bool counted = prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;

	NEED(cuMemCreate);
	if (!counted)
		return real(handle, size, prop, flags);
	TRY(memory_room(size, prop->location.id));
	TRY_WITH_ROOM(prop->location.id, size, real(handle, size, prop, flags));
	created(*handle, size, prop->location.id);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	struct swap_place place;
	struct physical *physical;

	NEED(cuMemRetainAllocationHandle);
	/* As of any allocation that was not made by cuMemCreate. */
	if (swap_find((CUdeviceptr)address, &place))
		return CUDA_ERROR_INVALID_VALUE;
	TRY(real(handle, address));
	pthread_mutex_lock(&lock);
	physical = find_physical(*handle);
	if (physical)
		physical->refs++;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* The lock is held over the driver's call: the number may come again at once. */
EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct physical *physical;
	CUresult result;

	NEED(cuMemRelease);
	pthread_mutex_lock(&lock);
	physical = find_physical(handle);
	result = real(handle);
	if (!result && physical)
		released(physical);
	pthread_mutex_unlock(&lock);
	return result;
}

static void mapped(CUdeviceptr base, size_t size, CUmemGenericAllocationHandle handle)
{
	struct physical *physical = find_physical(handle);
	struct mapping *mapping = physical ? malloc(sizeof(*mapping)) : NULL;

	if (!mapping)
		return;
	*mapping = (struct mapping){base, size, physical};
	if (tsearch(mapping, &by_base, compare_bases))
		physical->maps++;
	else
		free(mapping);
}

EXPORT CUresult cuMemMap(CUdeviceptr base, size_t size, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	CUresult result;

	NEED(cuMemMap);
	pthread_mutex_lock(&lock);
	result = real(base, size, offset, handle, flags);
	if (!result)
		mapped(base, size, handle);
	pthread_mutex_unlock(&lock);
	return result;
}

/* One call may end several mappings that stand side by side. */
static void unmapped(CUdeviceptr base, size_t size)
{
	CUdeviceptr end = base + size;
	struct mapping *mapping;

	while (base < end && (mapping = find_mapping(base))) {
		base += mapping->size;
		tdelete(mapping, &by_base, compare_bases);
		mapping->physical->maps--;
		drop_if_unused(mapping->physical);
		free(mapping);
	}
}

EXPORT CUresult cuMemUnmap(CUdeviceptr base, size_t size)
{
	struct swap_place place;
	CUresult result;

	NEED(cuMemUnmap);
	if (swap_find(base, &place))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	result = real(base, size);
	if (!result)
		unmapped(base, size);
	pthread_mutex_unlock(&lock);
	return result;
}

void vmm_after_fork(void)
{
	pthread_mutex_init(&lock, NULL);
	by_handle = by_base = NULL; /* the parent's */
}
