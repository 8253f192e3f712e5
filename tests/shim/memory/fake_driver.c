/* fake_driver.c: the fake driver's contexts and devices, and what replaces driver/lookup.c. */
#include "fake_driver.h"

#include "driver/lookup.h"
#include "fake_functions.h"
#include "fake_objects.h"

#include <string.h>

struct fake_driver fake_driver = {.capacity = FAKE_CAPACITY};

static struct CUctx_st {
	CUdevice device;
} contexts[2][FAKE_DEVICES];

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

FAKE(cuCtxGetCurrent)(CUcontext *context)
{
	*context = fake_driver.current;
	return CUDA_SUCCESS;
}

FAKE(cuCtxGetDevice)(CUdevice *device)
{
	*device = fake_current_device();
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
	CUdevice device = fake_current_device();

	*total = fake_driver.capacity;
	*left = fake_driver.capacity - fake_driver.used[device < 0 ? 0 : device];
	return CUDA_SUCCESS;
}

FAKE(cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode *mode)
{
	*mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	return CUDA_SUCCESS;
}

/* -- in the place of driver/lookup.c ---------------------------------------------------------- */

static const struct {
	const char *name;
	void *function;
} functions[] = {
#define FUNCTION(name) {#name, (void *)fake_##name},
    FAKE_FUNCTIONS(FUNCTION)
#undef FUNCTION
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
