/* reported_memory.c: how much memory a device has, and how much is free, as the program sees it.
 *
 * The total is what the job may have on the device; free is the total without what all processes of
 * the job have. The driver and NVML report the same.
 */
#include "base/compiler.h"
#include "base/wire.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "memory/used.h"
#include "tenant/tenant.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Replaces the driver's figures, if the device is one of the job's. */
static void apply_limit(const uint8_t *uuid, uint64_t *free_bytes, uint64_t *total)
{
	CUdevice device = uuid ? device_of(uuid) : -1;
	uint64_t limit = uuid ? tenant_limit(uuid) : NO_LIMIT, used;

	if (limit == NO_LIMIT)
		return;
	used = tenant_others(uuid) + (device >= 0 ? memory_used(device) : 0);
	*total = limit;
	*free_bytes = used < limit ? limit - used : 0;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	__typeof__(&cuMemGetInfo_v2) real = DRIVER(cuMemGetInfo_v2);
	CUresult result;
	uint64_t left, all;
	CUdevice device;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = real(free_bytes, total);
	if (result)
		return result;
	result = REAL(cuCtxGetDevice)(&device);
	if (result)
		return result;
	result = tenant_wait();
	if (result)
		return result;
	left = *free_bytes;
	all = *total;
	apply_limit(device_uuid(device), &left, &all);
	*free_bytes = left;
	*total = all;
	return CUDA_SUCCESS;
}

/* For the 32-bit forms: the bytes, or the largest number that fits. */
static unsigned int narrow(size_t bytes)
{
	return bytes < UINT_MAX ? (unsigned int)bytes : UINT_MAX;
}

EXPORT CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total)
{
	__typeof__(&cuMemGetInfo) real = DRIVER(cuMemGetInfo);
	CUresult result;
	size_t left, all;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = real(free_bytes, total);
	if (result)
		return result;
	result = cuMemGetInfo_v2(&left, &all);
	if (result)
		return result;
	*free_bytes = narrow(left);
	*total = narrow(all);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	__typeof__(&cuDeviceTotalMem_v2) real = DRIVER(cuDeviceTotalMem_v2);
	CUresult result;
	uint64_t left, total;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = real(bytes, device);
	if (result)
		return result;
	if (tenant_wait())
		return CUDA_SUCCESS;
	total = *bytes;
	apply_limit(device_uuid(device), &left, &total);
	*bytes = total;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
	__typeof__(&cuDeviceTotalMem) real = DRIVER(cuDeviceTotalMem);
	CUresult result;
	size_t total;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = real(bytes, device);
	if (result)
		return result;
	result = cuDeviceTotalMem_v2(&total, device);
	if (result)
		return result;
	*bytes = narrow(total);
	return CUDA_SUCCESS;
}

/* -- NVML --------------------------------------------------------------------- */

#define NVML_SUCCESS 0
#define NVML_ERROR_FUNCTION_NOT_FOUND 13
#define UUID_TEXT 96
#define WELCOME_MS 1000 /* how long NVML's functions wait for the daemon */

typedef struct nvml_device *nvmlDevice_t;

struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml_memory_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct nvml_memory *memory);
int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct nvml_memory_v2 *memory);

/* Parses "GPU-" and 16 bytes in hexadecimal with dashes. */
static bool parse_uuid(const char *text, uint8_t uuid[GL_UUID_BYTES])
{
	int n = 0;

	if (strncmp(text, "GPU-", 4))
		return false;
	for (text += 4; *text && n < GL_UUID_BYTES; text += 2) {
		unsigned int byte;

		text += *text == '-';
		if (sscanf(text, "%2x", &byte) != 1)
			return false;
		uuid[n++] = (uint8_t)byte;
	}
	return n == GL_UUID_BYTES && !*text;
}

/* The UUID of one of the job's devices. A monitoring program may run while the daemon does not, so
 * the first call waits for the daemon for WELCOME_MS at most, and later ones do not wait. */
static bool uuid_of(nvmlDevice_t device, uint8_t uuid[GL_UUID_BYTES])
{
	int (*get)(nvmlDevice_t, char *, unsigned int) =
	    (int (*)(nvmlDevice_t, char *, unsigned int))real_symbol("nvmlDeviceGetUUID");
	static atomic_bool waited;
	char text[UUID_TEXT];
	int ms = atomic_exchange(&waited, true) ? 0 : WELCOME_MS;

	return get && get(device, text, sizeof(text)) == NVML_SUCCESS && parse_uuid(text, uuid) &&
	       tenant_wait_ms(ms);
}

EXPORT int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct nvml_memory *memory)
{
	int (*real)(nvmlDevice_t, struct nvml_memory *) =
	    (int (*)(nvmlDevice_t, struct nvml_memory *))real_hook(HOOK_nvmlDeviceGetMemoryInfo);
	uint8_t uuid[GL_UUID_BYTES];
	uint64_t left, total;
	int result = real ? real(device, memory) : NVML_ERROR_FUNCTION_NOT_FOUND;

	if (result || !uuid_of(device, uuid))
		return result;
	left = memory->free;
	total = memory->total;
	apply_limit(uuid, &left, &total);
	*memory = (struct nvml_memory){total, left, total - left};
	return result;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct nvml_memory_v2 *memory)
{
	int (*real)(nvmlDevice_t, struct nvml_memory_v2 *) = (int (*)(
	    nvmlDevice_t, struct nvml_memory_v2 *))real_hook(HOOK_nvmlDeviceGetMemoryInfo_v2);
	uint8_t uuid[GL_UUID_BYTES];
	uint64_t left, total;
	int result = real ? real(device, memory) : NVML_ERROR_FUNCTION_NOT_FOUND;

	if (result || !uuid_of(device, uuid) || tenant_limit(uuid) == NO_LIMIT)
		return result;
	apply_limit(uuid, &left, &total);
	*memory = (struct nvml_memory_v2){memory->version, total, 0, left, total - left};
	return result;
}
