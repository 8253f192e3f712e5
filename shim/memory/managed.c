/* managed.c: the kind of memory that the driver moves, page by page when it is used.
 *
 * At a grant it is prefetched in bulk (migration.c), which is several times as fast.
 */
#include "base/wire.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "memory/migration.h"
#include "memory/ranges.h"

#define PAUSE_NS 50000
#define LONGEST_PAUSE_NS 1000000

static uint64_t asked;   /* bytes that the last grant told to restore */
static uint64_t fetched; /* bytes prefetched to devices since then */
static int64_t pause_ns;

/* -- allocating ------------------------------------------------------------------------ */

static bool serves(CUdevice device)
{
	(void)device;
	return DRIVER(cuMemAllocManaged) != NULL;
}

static CUresult allocate(CUdeviceptr *out, size_t size, CUdevice device)
{
	(void)device;
	return DRIVER(cuMemAllocManaged)(out, size, CU_MEM_ATTACH_GLOBAL);
}

static CUresult free_managed(CUdeviceptr base, const struct memory_range *range, bool wait)
{
	(void)range;
	(void)wait; /* the driver waits */
	return DRIVER(cuMemFree_v2)(base);
}

static void report(CUdevice device, struct gl_device *out)
{
	out->bytes += memory_counted(MEMORY_managed, device);
}

/* -- moving ------------------------------------------------------------------------------- */

static void refill(const struct gl_grant *grant)
{
	asked = fetched = 0;
	migrations_restored();
	pause_ns = PAUSE_NS;
	migrations_stop(true);
	for (uint32_t i = 0; grant && i < grant->n_devices && i < GL_MAX_DEVICES; i++) {
		CUdevice device = device_of(grant->devices[i].uuid);

		if (!grant->devices[i].bytes || device < 0)
			continue;
		asked += grant->devices[i].bytes;
		migration_begin(device, false);
	}
}

static void evict_all(void)
{
	pause_ns = PAUSE_NS;
	for (int d = 0; d < MAX_DEVICES; d++)
		if (memory_counted(MEMORY_managed, d))
			migration_begin(d, true);
}

static bool restore_finished(void)
{
	return !migrations_go_on();
}

static bool step(void)
{
	bool submitted = false;

	for (int d = 0; d < MAX_DEVICES; d++)
		submitted |= migration_step(d);
	if (submitted)
		pause_ns = PAUSE_NS;
	if (pause_ns < LONGEST_PAUSE_NS)
		pause_ns *= 2;
	return migrations_go_on();
}

static int64_t pause_for(void)
{
	return pause_ns;
}

static void stop(void)
{
	migrations_stop(false);
}

static struct link_sample link_sample(void)
{
	fetched += migrations_restored();
	return (struct link_sample){fetched < asked ? fetched : asked, 0};
}

static const struct mover mover = {
    .restore = refill,
    .restore_finished = restore_finished,
    .refill = refill,
    .evict_all = evict_all,
    .step = step,
    .pause_ns = pause_for,
    .stop = stop,
    .link_sample = link_sample,
};

const struct memory_kind managed_memory = {
    .name = "managed",
    .row = MEMORY_managed,
    .serves = serves,
    .allocate = allocate,
    .free = free_managed,
    .report = report,
    .context_ends = migrations_context_ends,
    .mover = &mover,
};
