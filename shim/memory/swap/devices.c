/* devices.c: swapped memory as data, and its lock. */
#include "memory/swap/devices.h"

#include "base/fork.h"
#include "base/locks.h"

struct lock swap_lock = LOCK(LOCK_SWAP);
struct swap_device swap_devices[MAX_DEVICES];
bool all_resident;

static atomic_bool used; /* the process has had a block */

bool swap_used(void)
{
	return atomic_load_explicit(&used, memory_order_acquire);
}

void swap_set_used(void)
{
	atomic_store(&used, true);
}

uint64_t swap_bytes(CUdevice device)
{
	uint64_t bytes;

	lock_take(&swap_lock);
	bytes = swap_devices[device].bytes;
	lock_give(&swap_lock);
	return bytes;
}

static void in_child(void)
{
	lock_after_fork(&swap_lock);
	for (int d = 0; d < MAX_DEVICES; d++)
		swap_devices[d] = (struct swap_device){0};
	all_resident = false;
	atomic_store(&used, false);
}
FORK_WATCH(in_child);
