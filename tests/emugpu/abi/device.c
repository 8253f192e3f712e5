/* device.c: the emulated libcuda: initialization and devices. */
#include "abi/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER_VERSION 13020

static CUresult check(int device)
{
	TRY(emu_ready());
	return device >= 0 && device < emu_devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuInit(unsigned int flags)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : emu_initialize();
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = DRIVER_VERSION;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	TRY(emu_ready());
	*count = emu_devices;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	TRY(check(ordinal));
	*device = ordinal;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
	TRY(check(device));
	snprintf(name, (size_t)length, "%s", emu_info[device].name);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	struct emu_request q = {.op = EMU_DEVICE, .arg = {(uint64_t)device}};
	struct emu_device_info *now = NULL;
	struct emu_reply r;
	void *payload;

	TRY(check(device));
	/* It is another GPU's where the process was restored there; its bus id stays. */
	if (!emu_call(&q, &r, &payload) && r.payload == sizeof(*now))
		now = payload;
	memcpy(uuid->bytes, now ? now->uuid_bytes : emu_info[device].uuid_bytes,
	       sizeof(uuid->bytes));
	free(now);
	return CUDA_SUCCESS;
}

#undef cuDeviceGetUuid
EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	return cuDeviceGetUuid_v2(uuid, device);
}

EXPORT CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
	TRY(check(device));
	*bytes = emu_info[device].memory;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
	TRY(check(device));
	snprintf(id, (size_t)length, "0000:%02x:00.0", emu_info[device].minor_number + 1);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	const struct emu_device_info *info =
	    &emu_info[device < 0 || device >= emu_devices ? 0 : device];
	const struct {
		CUdevice_attribute attribute;
		int value;
	} known[] = {
	    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
	    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
	    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
	    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
	    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
	    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
	    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
	    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
	    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, (int)info->multiprocessors},
	    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, (int)info->cc_major},
	    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, (int)info->cc_minor},
	    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, (int)info->clock_mhz * 1000},
	    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, (int)info->memory_clock_mhz * 1000},
	    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, (int)info->bus_width},
	    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
	    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
	    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
	    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0},
	    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
	    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
	    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
	    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0},
	    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
	    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
	    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
	    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
	    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
	    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
	    {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, (int)info->minor_number + 1},
	    {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
	    {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0},
	    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 0},
	};

	TRY(check(device));
	if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*value = 0; /* features that the emulated device lacks */
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].attribute == attribute)
			*value = known[i].value;
	return CUDA_SUCCESS;
}
