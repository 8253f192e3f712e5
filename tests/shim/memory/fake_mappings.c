/* fake_mappings.c: the fake driver's physical memory, and where it is mapped. */
#include "fake_functions.h"
#include "fake_objects.h"

#include <sys/mman.h>
#include <unistd.h>

/* Physical memory is a file in memory (memfd_create). */
struct physical {
	int file;
	size_t size;
	CUdevice device;
	unsigned int refs; /* its handle, and mappings */
};
static struct physical physicals[MAX_OBJECTS];

FAKE(cuMemGetAllocationGranularity)
(size_t *unit, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
	(void)prop;
	(void)option;
	*unit = FAKE_UNIT;
	return CUDA_SUCCESS;
}

FAKE(cuMemAddressReserve)
(CUdeviceptr *base, size_t size, size_t alignment, CUdeviceptr wanted, unsigned long long flags)
{
	void *at;

	(void)alignment;
	(void)wanted;
	(void)flags;
	if (!size || size % FAKE_UNIT)
		return CUDA_ERROR_INVALID_VALUE;
	if (fake_fails())
		return CUDA_ERROR_UNKNOWN;
	at = fake_pages(size, PROT_NONE);
	if (!at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	LOCKED(fake_add(FAKE_RESERVED, at, size, -1));
	*base = (CUdeviceptr)(uintptr_t)at;
	return CUDA_SUCCESS;
}

FAKE(cuMemAddressFree)(CUdeviceptr base, size_t size)
{
	struct fake_object *object;

	pthread_mutex_lock(&fake_lock);
	object = fake_find(FAKE_RESERVED, (uintptr_t)base);
	if (!object || object->size != size)
		fake_dies("addresses are freed that are not reserved");
	for (int i = 0; i < MAX_OBJECTS; i++)
		if (fake_objects[i].what == FAKE_MAPPED && fake_objects[i].base >= base &&
		    fake_objects[i].base < base + size)
			fake_dies("addresses are freed that are mapped");
	munmap((void *)object->base, size);
	object->what = FAKE_NOTHING;
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}

FAKE(cuMemCreate)
(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
 unsigned long long flags)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	int i = 0;

	(void)flags;
	if (fake_fails())
		return CUDA_ERROR_UNKNOWN;
	pthread_mutex_lock(&fake_lock);
	while (i < MAX_OBJECTS && physicals[i].refs)
		i++;
	if (i < MAX_OBJECTS && fake_take_capacity(prop->location.id, size)) {
		physicals[i] =
		    (struct physical){memfd_create("fake", 0), size, prop->location.id, 1};
		if (physicals[i].file < 0 || ftruncate(physicals[i].file, (off_t)size))
			fake_dies("no memory");
		*handle = (CUmemGenericAllocationHandle)i + 1;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake_lock);
	return result;
}

/* The caller holds the lock. */
static void let_go(unsigned int number)
{
	struct physical *physical = &physicals[number - 1];

	if (!physical->refs)
		fake_dies("memory is released once more than it was created and mapped");
	if (--physical->refs)
		return;
	close(physical->file);
	fake_driver.used[physical->device] -= physical->size;
}

FAKE(cuMemRelease)(CUmemGenericAllocationHandle handle)
{
	LOCKED(let_go((unsigned int)handle));
	return CUDA_SUCCESS;
}

FAKE(cuMemMap)
(CUdeviceptr base, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
 unsigned long long flags)
{
	struct physical *physical = &physicals[handle - 1];
	struct fake_object *object;

	(void)flags;
	if (fake_fails())
		return CUDA_ERROR_UNKNOWN;
	pthread_mutex_lock(&fake_lock);
	if (!fake_within(FAKE_RESERVED, (uintptr_t)base, size))
		fake_dies("a mapping where nothing is reserved");
	if (mmap((void *)(uintptr_t)base, size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->file,
	         (off_t)offset) == MAP_FAILED)
		fake_dies("mmap fails");
	object = fake_add(FAKE_MAPPED, (void *)(uintptr_t)base, size, physical->device);
	object->physical = (unsigned int)handle;
	physical->refs++;
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}

FAKE(cuMemUnmap)(CUdeviceptr base, size_t size)
{
	CUdeviceptr end = base + size;

	pthread_mutex_lock(&fake_lock);
	for (struct fake_object *object; base < end; base += object->size) {
		object = fake_find(FAKE_MAPPED, (uintptr_t)base);
		if (!object)
			fake_dies("what is unmapped is not mapped");
		if (mmap((void *)object->base, object->size, PROT_NONE,
		         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
		         0) == MAP_FAILED)
			fake_dies("mmap fails");
		object->what = FAKE_NOTHING;
		let_go(object->physical);
	}
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}

FAKE(cuMemSetAccess)(CUdeviceptr base, size_t size, const CUmemAccessDesc *access, size_t n)
{
	CUresult result = CUDA_SUCCESS;

	(void)access;
	if (fake_fails())
		return CUDA_ERROR_UNKNOWN;
	if (n && mprotect((void *)(uintptr_t)base, size, PROT_READ | PROT_WRITE))
		result = CUDA_ERROR_INVALID_VALUE;
	return result;
}

FAKE(cuMemExportToShareableHandle)
(void *file, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
 unsigned long long flags)
{
	(void)type;
	(void)flags;
	*(int *)file = dup(physicals[handle - 1].file);
	return CUDA_SUCCESS;
}

FAKE(cuMemImportFromShareableHandle)
(CUmemGenericAllocationHandle *handle, void *file, CUmemAllocationHandleType type)
{
	(void)handle;
	(void)file;
	(void)type;
	return CUDA_ERROR_NOT_SUPPORTED;
}
