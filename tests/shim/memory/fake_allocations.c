/* fake_allocations.c: the fake driver's plain and managed memory. */
#include "fake_functions.h"
#include "fake_objects.h"

#include <sys/mman.h>

FAKE(cuMemAlloc_v2)(CUdeviceptr *pointer, size_t size)
{
	CUdevice device = fake_current_device();
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	void *at;

	if (!size || !pointer)
		return CUDA_ERROR_INVALID_VALUE;
	if (fake_fails())
		return CUDA_ERROR_UNKNOWN;
	pthread_mutex_lock(&fake_lock);
	if (size < SIZE_MAX / 2 && fake_take_capacity(device, size)) {
		at = fake_pages(size, PROT_READ | PROT_WRITE);
		if (!at)
			fake_dies("no memory");
		fake_add(FAKE_PLAIN, at, size, device);
		*pointer = (CUdeviceptr)(uintptr_t)at;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake_lock);
	return result;
}

FAKE(cuMemAllocManaged)(CUdeviceptr *pointer, size_t size, unsigned int flags)
{
	void *at;

	(void)flags;
	if (!size || !pointer)
		return CUDA_ERROR_INVALID_VALUE;
	if (fake_fails())
		return CUDA_ERROR_UNKNOWN;
	at = size < SIZE_MAX / 2 ? fake_pages(size, PROT_READ | PROT_WRITE) : NULL;
	if (!at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	LOCKED(fake_add(FAKE_MANAGED, at, size, fake_current_device());
	       fake_driver.managed += size);
	*pointer = (CUdeviceptr)(uintptr_t)at;
	return CUDA_SUCCESS;
}

/* The caller holds the lock. */
static void end_allocation(struct fake_object *object)
{
	if (object->what == FAKE_PLAIN)
		fake_driver.used[object->device] -= object->size;
	else
		fake_driver.managed -= object->size;
	munmap((void *)object->base, object->size);
	object->what = FAKE_NOTHING;
}

FAKE(cuMemFree_v2)(CUdeviceptr pointer)
{
	struct fake_object *object;

	pthread_mutex_lock(&fake_lock);
	object = fake_find(FAKE_PLAIN, (uintptr_t)pointer);
	if (!object)
		object = fake_find(FAKE_MANAGED, (uintptr_t)pointer);
	if (object)
		end_allocation(object);
	pthread_mutex_unlock(&fake_lock);
	return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE(cuMemFreeAsync)(CUdeviceptr pointer, CUstream stream)
{
	(void)stream;
	return fake_cuMemFree_v2(pointer);
}

void fake_end_context(CUcontext context)
{
	pthread_mutex_lock(&fake_lock);
	for (int i = 0; i < MAX_OBJECTS; i++)
		if (fake_objects[i].context == context &&
		    (fake_objects[i].what == FAKE_PLAIN || fake_objects[i].what == FAKE_MANAGED))
			end_allocation(&fake_objects[i]);
	pthread_mutex_unlock(&fake_lock);
}

FAKE(cuMemPrefetchAsync_v2)
(CUdeviceptr pointer, size_t size, CUmemLocation location, unsigned int flags, CUstream stream)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	(void)location;
	(void)flags;
	(void)stream;
	pthread_mutex_lock(&fake_lock);
	if (fake_within(FAKE_MANAGED, (uintptr_t)pointer, size)) {
		fake_driver.prefetched += size;
		if (!fake_driver.first_prefetch)
			fake_driver.first_prefetch = pointer;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake_lock);
	return result;
}
