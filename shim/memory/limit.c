/* limit.c: the bytes of each device that this process counts against its job's limit.
 *
 * A thread counts the bytes before it allocates, and gives them back if the allocation fails. So
 * several threads that allocate at once cannot exceed the limit together. An allocation is counted
 * until it is freed, wherever its bytes are meanwhile.
 */
#include "memory/limit.h"
#include "memory/claims.h"

#include "base/fork.h"
#include "base/locks.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "memory/reclaim.h"
#include "tenant/tenant.h"

#include <string.h>

static uint64_t taken[MAX_DEVICES]; /* bytes; under the lock */
static struct lock lock = LOCK(LOCK_LIMIT);

static bool known(CUdevice device)
{
	return device >= 0 && device < MAX_DEVICES;
}

uint64_t memory_used(CUdevice device)
{
	uint64_t used;

	if (!known(device))
		return 0;
	lock_take(&lock);
	used = taken[device];
	lock_give(&lock);
	return used;
}

void limit_add(CUdevice device, uint64_t size)
{
	if (!known(device))
		return;
	lock_take(&lock);
	taken[device] += size;
	lock_give(&lock);
}

void limit_give(CUdevice device, uint64_t size)
{
	limit_add(device, -size);
	if (known(device))
		claim_freed(device, memory_used(device));
}

/* Counts the bytes if they fit. limit: of the job; others: bytes of the job's other processes. */
static bool take(CUdevice device, uint64_t size, uint64_t limit, uint64_t others)
{
	bool fits;

	lock_take(&lock);
	fits = size <= limit && others <= limit - size && taken[device] <= limit - size - others;
	if (fits)
		taken[device] += size;
	lock_give(&lock);
	return fits;
}

/* Before it fails it frees memory that is kept for later allocations or could not be freed yet. */
CUresult limit_take(CUdevice device, uint64_t size)
{
	const uint8_t *uuid = device_uuid(device);
	uint64_t limit;
	CUresult result;

	result = tenant_wait();
	if (result)
		return result;
	limit = uuid ? tenant_limit(uuid) : NO_LIMIT;
	if (limit == NO_LIMIT || tenant_oversubscribes()) {
		limit_add(device, size);
		return CUDA_SUCCESS;
	}
	for (int attempt = 0; attempt < 2; attempt++) {
		if (take(device, size, limit, tenant_others(uuid))) {
			if (!claim_cover(device, uuid, memory_used(device), limit))
				return CUDA_SUCCESS;
			limit_give(device, size);
		}
		memory_reclaim(true);
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static void in_child(void)
{
	lock_after_fork(&lock);
	memset(taken, 0, sizeof(taken)); /* it is the parent's */
}
FORK_WATCH(in_child);
