/* fixed.c: the kind of memory that the driver allocates and that stays on the device. */
#include "base/wire.h"
#include "driver/lookup.h"
#include "memory/ranges.h"
#include "memory/shortage.h"
#include "work/contexts.h"

static bool serves(CUdevice device)
{
	(void)device;
	return true;
}

/* Called only if the driver has no managed memory. */
static CUresult allocate(CUdeviceptr *out, size_t size, CUdevice device)
{
	struct shortage shortage = {0};
	CUresult result;

	do
		result = DRIVER(cuMemAlloc_v2)(out, size);
	while (shortage_wait(&shortage, result, device, size));
	return result;
}

static CUresult free_plain(CUdeviceptr base, const struct memory_range *range, bool wait)
{
	(void)range;
	(void)wait; /* the driver waits */
	return DRIVER(cuMemFree_v2)(base);
}

/* Bytes of memory nodes in graphs. The driver allocates them, and only the driver counts them. */
static uint64_t graph_memory(CUdevice device)
{
	cuuint64_t reserved = 0;

	if (!contexts_exist() || !REAL(cuDeviceGetGraphMemAttribute) ||
	    REAL(cuDeviceGetGraphMemAttribute)(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
	                                       &reserved))
		return 0;
	return reserved;
}

static void report(CUdevice device, struct gl_device *out)
{
	out->fixed += memory_counted(MEMORY_fixed, device) + graph_memory(device);
}

static void explain(CUdevice device, struct gl_details *out)
{
	uint64_t mapped = memory_mapped(device), all = memory_counted(MEMORY_fixed, device);

	out->mapped += mapped;
	out->other += (all > mapped ? all - mapped : 0) + graph_memory(device);
}

const struct memory_kind fixed_memory = {
    .name = "fixed",
    .row = MEMORY_fixed,
    .in_driver_pools = true,
    .serves = serves,
    .allocate = allocate,
    .free = free_plain,
    .report = report,
    .explain = explain,
};
