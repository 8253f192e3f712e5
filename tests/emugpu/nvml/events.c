/* events.c: Xids. The file nvml-xids in EMUGPU_DIR has a line for each one: DEVICE XID. A set hears
 * of those that were written after a device was registered in it. */
#include "nvml/events.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define XID 8U /* the kind of event */

struct emu_nvml_events {
	unsigned devices; /* a bit for each */
	long read;        /* bytes of the file */
};

struct event_data {
	nvml_device device;
	unsigned long long kind, data;
	unsigned int gpu_instance, compute_instance;
};

static FILE *open_xids(void)
{
	const char *dir = getenv("EMUGPU_DIR");
	char path[PATH_MAX];

	if (!dir || snprintf(path, sizeof(path), "%s/nvml-xids", dir) >= (int)sizeof(path))
		return NULL;
	return fopen(path, "re");
}

EXPORT nvml_return nvmlEventSetCreate(struct emu_nvml_events **out)
{
	*out = calloc(1, sizeof(**out));
	return *out ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

EXPORT nvml_return nvmlEventSetFree(struct emu_nvml_events *set)
{
	free(set);
	return NVML_SUCCESS;
}

nvml_return events_register(int index, unsigned long long kinds, struct emu_nvml_events *set)
{
	FILE *file;

	if (kinds & ~(unsigned long long)XID)
		return NVML_ERROR_NOT_SUPPORTED;
	if (!set->devices && (file = open_xids())) {
		fseek(file, 0, SEEK_END);
		set->read = ftell(file);
		fclose(file);
	}
	set->devices |= 1U << index;
	return NVML_SUCCESS;
}

static bool next(struct emu_nvml_events *set, struct event_data *out)
{
	FILE *file = open_xids();
	unsigned device, xid;
	bool found = false;

	if (!file)
		return false;
	fseek(file, set->read, SEEK_SET);
	while (!found && fscanf(file, "%u %u\n", &device, &xid) == 2) {
		set->read = ftell(file);
		found = set->devices >> device & 1U;
		if (found)
			*out = (struct event_data){
			    .device = (nvml_device)(uintptr_t)(device + 1),
			    .kind = XID,
			    .data = xid,
			    .gpu_instance = UINT_MAX,
			    .compute_instance = UINT_MAX,
			};
	}
	fclose(file);
	return found;
}

EXPORT nvml_return nvmlEventSetWait_v2(struct emu_nvml_events *set, struct event_data *out,
                                       unsigned int timeout_ms)
{
	for (unsigned int waited = 0; !next(set, out); waited += 10) {
		if (waited >= timeout_ms)
			return NVML_ERROR_TIMEOUT;
		usleep(10000);
	}
	return NVML_SUCCESS;
}
