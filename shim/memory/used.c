/* used.c: how many bytes of each device this process counts against its job's limit. */
#include "memory/used.h"

#include "base/fork.h"
#include "base/locks.h"
#include "driver/devices.h"

#include <string.h>

static uint64_t used[MAX_DEVICES]; /* bytes; under the lock */
static struct lock lock = LOCK(LOCK_USED);

uint64_t memory_used(CUdevice device)
{
	uint64_t bytes;

	if (!device_is_number(device))
		return 0;
	lock_take(&lock);
	bytes = used[device];
	lock_give(&lock);
	return bytes;
}

void used_add(CUdevice device, int64_t size)
{
	if (!device_is_number(device))
		return;
	lock_take(&lock);
	used[device] += (uint64_t)size;
	lock_give(&lock);
}

bool used_take(CUdevice device, uint64_t size, uint64_t most)
{
	bool fits;

	lock_take(&lock);
	fits = size <= most && used[device] <= most - size;
	if (fits)
		used[device] += size;
	lock_give(&lock);
	return fits;
}

static void in_child(void)
{
	lock_after_fork(&lock);
	memset(used, 0, sizeof(used)); /* it is the parent's */
}
FORK_WATCH(in_child);
