/* faults.c: see faults.h. The file nvml-faults in EMUGPU_DIR has a line for each fault:
 * DEVICE KIND, where DEVICE is an index or "all". It is read at every call, so a fault begins and
 * ends for processes that run already. */
#include "nvml/faults.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const kinds[] = {
    [NVML_FAULT_HANG] = "hang",
    [NVML_FAULT_CRASH] = "crash",
    [NVML_FAULT_ERROR] = "error",
    [NVML_FAULT_LOST] = "lost",
    [NVML_FAULT_GARBAGE] = "garbage",
    [NVML_FAULT_MIG] = "mig",
    [NVML_FAULT_EXCLUSIVE] = "exclusive",
    [NVML_FAULT_SLOW] = "slow",
    [NVML_FAULT_ECC] = "ecc",
    [NVML_FAULT_ROWS] = "rows",
};

static enum nvml_fault kind_of(const char *name)
{
	for (size_t i = 1; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i], name))
			return (enum nvml_fault)i;
	return NVML_FAULT_NONE;
}

static enum nvml_fault written(int device)
{
	const char *dir = getenv("EMUGPU_DIR");
	enum nvml_fault found = NVML_FAULT_NONE;
	char path[PATH_MAX], where[16], kind[16], wanted[16];
	FILE *file;

	if (!dir || snprintf(path, sizeof(path), "%s/nvml-faults", dir) >= (int)sizeof(path))
		return NVML_FAULT_NONE;
	file = fopen(path, "re");
	if (!file)
		return NVML_FAULT_NONE;
	if (device == NVML_FAULT_ALL)
		strcpy(wanted, "all");
	else
		snprintf(wanted, sizeof(wanted), "%d", device);
	while (fscanf(file, "%15s %15s", where, kind) == 2)
		if (!strcmp(where, wanted))
			found = kind_of(kind);
	fclose(file);
	return found;
}

/* So that a test knows that somebody hangs: the file nvml-hangs appears. */
static void tell_of_hang(void)
{
	const char *dir = getenv("EMUGPU_DIR");
	char path[PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s/nvml-hangs", dir);
	file = fopen(path, "we");
	if (file)
		fclose(file);
}

enum nvml_fault nvml_fault_now(int device)
{
	enum nvml_fault fault = written(device);

	if (fault == NVML_FAULT_HANG)
		tell_of_hang();
	while (fault == NVML_FAULT_HANG) {
		usleep(10000);
		fault = written(device);
	}
	if (fault == NVML_FAULT_CRASH)
		abort();
	return fault;
}
