/* busy_groups.c: how many channel groups of this process have work at once, on average. */
#include "lease/busy_groups.h"

#include "base/fork.h"
#include "channels/channels.h"
#include "driver/devices.h"
#include "work/contexts.h"

#define SAMPLES 32 /* over which the mean is taken, more or less */
#define FAR 0.7    /* from here on the mean speaks for another number */

static struct {
	double mean; /* of contexts that have work, while some have */
	unsigned int told;
} devices[MAX_DEVICES];

static void note(CUdevice device, unsigned int busy)
{
	double *mean = &devices[device].mean;
	unsigned int told = devices[device].told ? devices[device].told : 1;

	*mean = *mean > 0 ? *mean + ((double)busy - *mean) / SAMPLES : (double)busy;
	if (*mean > (double)told - FAR && *mean < (double)told + FAR)
		return;
	devices[device].told = (unsigned int)(*mean + 0.5);
	channels_divide_slice(device_uuid(device), devices[device].told);
}

void busy_groups_note(void)
{
	for (int d = 0; d < MAX_DEVICES; d++) {
		unsigned int busy = device_known(d) ? contexts_busy_on(d) : 0;

		if (busy)
			note(d, busy);
	}
}

static void in_child(void)
{
	for (int d = 0; d < MAX_DEVICES; d++) {
		devices[d].mean = 0;
		devices[d].told = 0;
	}
}
FORK_WATCH(in_child);
