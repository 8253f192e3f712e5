/* fake_driver.c: a driver in this process, in the place of driver/lookup.c. */
#include "fake_driver.h"

#include "driver/devices.h"
#include "driver/lookup.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_OBJECTS 4096

struct fake_driver fake_driver = {.capacity = FAKE_CAPACITY};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What stands behind addresses: allocations, reservations, mappings. */
struct object {
	enum { NOTHING, PLAIN, MANAGED, RESERVED, MAPPED, PINNED } what;
	uintptr_t base;
	size_t size;
	CUdevice device;
	CUcontext context;
};
static struct object objects[MAX_OBJECTS];

/* Physical memory: a file of the kernel's. */
struct physical {
	int file;
	size_t size;
	CUdevice device;
	unsigned int refs; /* its handle, and mappings */
};
static struct physical physicals[MAX_OBJECTS];
static unsigned int mapped_physical[MAX_OBJECTS]; /* by object: what it maps, from 1 on */

static struct CUctx_st {
	CUdevice device;
} contexts[2][FAKE_DEVICES];

static void die(const char *what)
{
	fprintf(stderr, "fake driver: %s\n", what);
	abort();
}

CUcontext fake_context(CUdevice device)
{
	return &contexts[0][device];
}

CUcontext fake_second_context(CUdevice device)
{
	return &contexts[1][device];
}

uint8_t fake_uuid_byte(CUdevice device)
{
	return (uint8_t)(0xA0 + device);
}

static CUdevice current_device(void)
{
	for (int d = 0; d < FAKE_DEVICES; d++)
		if (fake_driver.current == fake_context(d) ||
		    fake_driver.current == fake_second_context(d))
			return d;
	return -1;
}

/* -- objects; the lock is held ----------------------------------------------------- */

static struct object *add(int what, void *base, size_t size, CUdevice device)
{
	for (int i = 0; i < MAX_OBJECTS; i++) {
		if (objects[i].what != NOTHING)
			continue;
		objects[i] =
		    (struct object){what, (uintptr_t)base, size, device, fake_driver.current};
		mapped_physical[i] = 0;
		return &objects[i];
	}
	die("too many objects");
	return NULL;
}

static struct object *find(int what, uintptr_t base)
{
	for (int i = 0; i < MAX_OBJECTS; i++)
		if ((int)objects[i].what == what && objects[i].base == base)
			return &objects[i];
	return NULL;
}

static bool within(int what, uintptr_t base, size_t size)
{
	for (int i = 0; i < MAX_OBJECTS; i++)
		if ((int)objects[i].what == what && base >= objects[i].base &&
		    base + size <= objects[i].base + objects[i].size)
			return true;
	return false;
}

static bool take_room(CUdevice device, size_t size)
{
	if (fake_driver.used[device] + size > fake_driver.capacity)
		return false;
	fake_driver.used[device] += size;
	return true;
}

static void *anonymous(size_t size, int access)
{
	void *at = mmap(NULL, size, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* -- contexts and devices ------------------------------------------------------------- */

#define FAKE(name) static CUresult fake_##name
#define LOCKED(code)                                                                               \
	do {                                                                                       \
		pthread_mutex_lock(&lock);                                                         \
		code;                                                                              \
		pthread_mutex_unlock(&lock);                                                       \
	} while (0)

FAKE(cuCtxGetCurrent)(CUcontext *context)
{
	*context = fake_driver.current;
	return CUDA_SUCCESS;
}

FAKE(cuCtxGetDevice)(CUdevice *device)
{
	*device = current_device();
	return *device < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

FAKE(cuCtxPushCurrent_v2)(CUcontext context)
{
	(void)context;
	return CUDA_SUCCESS;
}

FAKE(cuCtxPopCurrent_v2)(CUcontext *context)
{
	*context = fake_driver.current;
	return CUDA_SUCCESS;
}

FAKE(cuCtxSynchronize)(void)
{
	return CUDA_SUCCESS;
}

FAKE(cuCtxRecordEvent)(CUcontext context, CUevent event)
{
	(void)context;
	(void)event;
	return CUDA_SUCCESS;
}

FAKE(cuDeviceGetUuid_v2)(CUuuid *uuid, CUdevice device)
{
	memset(uuid, 0, sizeof(*uuid));
	uuid->bytes[0] = (char)fake_uuid_byte(device);
	return CUDA_SUCCESS;
}

FAKE(cuDeviceGetAttribute)(int *value, CUdevice_attribute attribute, CUdevice device)
{
	(void)attribute;
	(void)device;
	*value = 1;
	return CUDA_SUCCESS;
}

FAKE(cuDeviceCanAccessPeer)(int *can, CUdevice from, CUdevice to)
{
	*can = from != to;
	return CUDA_SUCCESS;
}

FAKE(cuMemGetInfo_v2)(size_t *left, size_t *total)
{
	CUdevice device = current_device();

	*total = fake_driver.capacity;
	*left = fake_driver.capacity - fake_driver.used[device < 0 ? 0 : device];
	return CUDA_SUCCESS;
}

FAKE(cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode *mode)
{
	*mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	return CUDA_SUCCESS;
}

/* -- plain and managed memory ----------------------------------------------------------- */

/* The test wants this call to fail. */
static bool fails(void)
{
	bool now;

	LOCKED(now = fake_driver.fail_after && --fake_driver.fail_after == 0);
	return now;
}

FAKE(cuMemAlloc_v2)(CUdeviceptr *pointer, size_t size)
{
	CUdevice device = current_device();
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	void *at;

	if (!size || !pointer)
		return CUDA_ERROR_INVALID_VALUE;
	if (fails())
		return CUDA_ERROR_UNKNOWN;
	pthread_mutex_lock(&lock);
	if (size < SIZE_MAX / 2 && take_room(device, size)) {
		at = anonymous(size, PROT_READ | PROT_WRITE);
		if (!at)
			die("no memory");
		add(PLAIN, at, size, device);
		*pointer = (CUdeviceptr)(uintptr_t)at;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

FAKE(cuMemAllocManaged)(CUdeviceptr *pointer, size_t size, unsigned int flags)
{
	void *at;

	(void)flags;
	if (!size || !pointer)
		return CUDA_ERROR_INVALID_VALUE;
	if (fails())
		return CUDA_ERROR_UNKNOWN;
	at = size < SIZE_MAX / 2 ? anonymous(size, PROT_READ | PROT_WRITE) : NULL;
	if (!at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	LOCKED(add(MANAGED, at, size, current_device()); fake_driver.managed += size);
	*pointer = (CUdeviceptr)(uintptr_t)at;
	return CUDA_SUCCESS;
}

/* The lock is held. */
static void end_allocation(struct object *object)
{
	if (object->what == PLAIN)
		fake_driver.used[object->device] -= object->size;
	else
		fake_driver.managed -= object->size;
	munmap((void *)object->base, object->size);
	object->what = NOTHING;
}

FAKE(cuMemFree_v2)(CUdeviceptr pointer)
{
	struct object *object;

	pthread_mutex_lock(&lock);
	object = find(PLAIN, (uintptr_t)pointer);
	if (!object)
		object = find(MANAGED, (uintptr_t)pointer);
	if (object)
		end_allocation(object);
	pthread_mutex_unlock(&lock);
	return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE(cuMemFreeAsync)(CUdeviceptr pointer, CUstream stream)
{
	(void)stream;
	return fake_cuMemFree_v2(pointer);
}

void fake_end_context(CUcontext context)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX_OBJECTS; i++)
		if (objects[i].context == context &&
		    (objects[i].what == PLAIN || objects[i].what == MANAGED))
			end_allocation(&objects[i]);
	pthread_mutex_unlock(&lock);
}

FAKE(cuMemPrefetchAsync_v2)
(CUdeviceptr pointer, size_t size, CUmemLocation location, unsigned int flags, CUstream stream)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	(void)location;
	(void)flags;
	(void)stream;
	pthread_mutex_lock(&lock);
	if (within(MANAGED, (uintptr_t)pointer, size)) {
		fake_driver.prefetched += size;
		if (!fake_driver.first_prefetch)
			fake_driver.first_prefetch = pointer;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

/* -- memory that is mapped ---------------------------------------------------------------- */

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
	if (fails())
		return CUDA_ERROR_UNKNOWN;
	at = anonymous(size, PROT_NONE);
	if (!at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	LOCKED(add(RESERVED, at, size, -1));
	*base = (CUdeviceptr)(uintptr_t)at;
	return CUDA_SUCCESS;
}

FAKE(cuMemAddressFree)(CUdeviceptr base, size_t size)
{
	struct object *object;

	pthread_mutex_lock(&lock);
	object = find(RESERVED, (uintptr_t)base);
	if (!object || object->size != size)
		die("addresses are freed that are not reserved");
	for (int i = 0; i < MAX_OBJECTS; i++)
		if (objects[i].what == MAPPED && objects[i].base >= base &&
		    objects[i].base < base + size)
			die("addresses are freed that are mapped");
	munmap((void *)object->base, size);
	object->what = NOTHING;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

FAKE(cuMemCreate)
(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
 unsigned long long flags)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	int i = 0;

	(void)flags;
	if (fails())
		return CUDA_ERROR_UNKNOWN;
	pthread_mutex_lock(&lock);
	while (i < MAX_OBJECTS && physicals[i].refs)
		i++;
	if (i < MAX_OBJECTS && take_room(prop->location.id, size)) {
		physicals[i] =
		    (struct physical){memfd_create("fake", 0), size, prop->location.id, 1};
		if (physicals[i].file < 0 || ftruncate(physicals[i].file, (off_t)size))
			die("no memory");
		*handle = (CUmemGenericAllocationHandle)i + 1;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

/* The lock is held. */
static void let_go(unsigned int number)
{
	struct physical *physical = &physicals[number - 1];

	if (!physical->refs)
		die("memory is released once more than it was created and mapped");
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
	struct object *object;

	(void)flags;
	if (fails())
		return CUDA_ERROR_UNKNOWN;
	pthread_mutex_lock(&lock);
	if (!within(RESERVED, (uintptr_t)base, size))
		die("a mapping where nothing is reserved");
	if (mmap((void *)(uintptr_t)base, size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->file,
	         (off_t)offset) == MAP_FAILED)
		die("mmap fails");
	object = add(MAPPED, (void *)(uintptr_t)base, size, physical->device);
	mapped_physical[object - objects] = (unsigned int)handle;
	physical->refs++;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

FAKE(cuMemUnmap)(CUdeviceptr base, size_t size)
{
	CUdeviceptr end = base + size;

	pthread_mutex_lock(&lock);
	for (struct object *object; base < end; base += object->size) {
		object = find(MAPPED, (uintptr_t)base);
		if (!object)
			die("what is unmapped is not mapped");
		if (mmap((void *)object->base, object->size, PROT_NONE,
		         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
		         0) == MAP_FAILED)
			die("mmap fails");
		object->what = NOTHING;
		let_go(mapped_physical[object - objects]);
	}
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

FAKE(cuMemSetAccess)(CUdeviceptr base, size_t size, const CUmemAccessDesc *access, size_t n)
{
	CUresult result = CUDA_SUCCESS;

	(void)access;
	if (fails())
		return CUDA_ERROR_UNKNOWN;
	if (n && mprotect((void *)(uintptr_t)base, size, PROT_READ | PROT_WRITE))
		result = CUDA_ERROR_INVALID_VALUE;
	return result;
}

/* -- copies, streams, events ----------------------------------------------------------------- */

FAKE(cuMemcpyDtoHAsync_v2)(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
	(void)stream;
	memcpy(to, (void *)(uintptr_t)from, size);
	fake_driver.copied_out += size;
	return CUDA_SUCCESS;
}

FAKE(cuMemcpyHtoDAsync_v2)(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
	(void)stream;
	memcpy((void *)(uintptr_t)to, from, size);
	return CUDA_SUCCESS;
}

FAKE(cuMemHostRegister_v2)(void *at, size_t size, unsigned int flags)
{
	(void)flags;
	if (fake_driver.refuse_pinning)
		return CUDA_ERROR_OUT_OF_MEMORY;
	LOCKED(add(PINNED, at, size, -1); fake_driver.pinned += size);
	return CUDA_SUCCESS;
}

FAKE(cuMemHostUnregister)(void *at)
{
	struct object *object;

	pthread_mutex_lock(&lock);
	object = find(PINNED, (uintptr_t)at);
	if (!object)
		die("what is unregistered is not registered");
	fake_driver.pinned -= object->size;
	object->what = NOTHING;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

FAKE(cuStreamCreate)(CUstream *stream, unsigned int flags)
{
	(void)flags;
	*stream = (CUstream)(uintptr_t)1;
	LOCKED(fake_driver.streams++);
	return CUDA_SUCCESS;
}

static void must_not_wait(void)
{
	if (fake_driver.hold_events)
		die("somebody waits for an event that does not happen");
}

FAKE(cuStreamDestroy_v2)(CUstream stream)
{
	(void)stream;
	LOCKED(fake_driver.streams--);
	return CUDA_SUCCESS;
}

FAKE(cuStreamSynchronize)(CUstream stream)
{
	(void)stream;
	must_not_wait();
	return CUDA_SUCCESS;
}

FAKE(cuStreamQuery)(CUstream stream)
{
	(void)stream;
	return fake_driver.hold_events ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

FAKE(cuEventCreate)(CUevent *event, unsigned int flags)
{
	(void)flags;
	*event = (CUevent)(uintptr_t)1;
	LOCKED(fake_driver.events++);
	return CUDA_SUCCESS;
}

FAKE(cuEventDestroy_v2)(CUevent event)
{
	(void)event;
	LOCKED(fake_driver.events--);
	return CUDA_SUCCESS;
}

FAKE(cuEventRecord)(CUevent event, CUstream stream)
{
	(void)event;
	(void)stream;
	return CUDA_SUCCESS;
}

FAKE(cuEventQuery)(CUevent event)
{
	(void)event;
	return fake_driver.hold_events ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

FAKE(cuEventSynchronize)(CUevent event)
{
	(void)event;
	must_not_wait();
	return CUDA_SUCCESS;
}

/* -- in the place of driver/lookup.c ---------------------------------------------------------- */

static const struct {
	const char *name;
	void *function;
} functions[] = {
#define ROW(name) {#name, (void *)fake_##name}
    ROW(cuCtxGetCurrent),
    ROW(cuCtxGetDevice),
    ROW(cuCtxPushCurrent_v2),
    ROW(cuCtxPopCurrent_v2),
    ROW(cuCtxSynchronize),
    ROW(cuCtxRecordEvent),
    ROW(cuDeviceGetUuid_v2),
    ROW(cuDeviceGetAttribute),
    ROW(cuDeviceCanAccessPeer),
    ROW(cuMemGetInfo_v2),
    ROW(cuThreadExchangeStreamCaptureMode),
    ROW(cuMemAlloc_v2),
    ROW(cuMemAllocManaged),
    ROW(cuMemFree_v2),
    ROW(cuMemFreeAsync),
    ROW(cuMemPrefetchAsync_v2),
    ROW(cuMemGetAllocationGranularity),
    ROW(cuMemAddressReserve),
    ROW(cuMemAddressFree),
    ROW(cuMemCreate),
    ROW(cuMemRelease),
    ROW(cuMemMap),
    ROW(cuMemUnmap),
    ROW(cuMemSetAccess),
    ROW(cuMemcpyDtoHAsync_v2),
    ROW(cuMemcpyHtoDAsync_v2),
    ROW(cuMemHostRegister_v2),
    ROW(cuMemHostUnregister),
    ROW(cuStreamCreate),
    ROW(cuStreamDestroy_v2),
    ROW(cuStreamSynchronize),
    ROW(cuStreamQuery),
    ROW(cuEventCreate),
    ROW(cuEventDestroy_v2),
    ROW(cuEventRecord),
    ROW(cuEventQuery),
    ROW(cuEventSynchronize),
};

struct hooked hooks[N_HOOKS] = {
#define HOOK(name) {#name, NULL},
#include "driver/hooks.def"
};

void *real_symbol(const char *name)
{
	if ((fake_driver.no_managed && !strcmp(name, "cuMemAllocManaged")) ||
	    (fake_driver.no_mapping && !strcmp(name, "cuMemCreate")))
		return NULL;
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (!strcmp(functions[i].name, name))
			return functions[i].function;
	return NULL;
}

void *find_hook(enum hook hook)
{
	return real_symbol(hooks[hook].name);
}
