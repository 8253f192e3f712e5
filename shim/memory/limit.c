/* limit.c: the bytes of each device that this process counts against its job's limit.
 *
 * A thread counts the bytes before it allocates, and gives them back if the allocation fails. So
 * several threads that allocate at once cannot exceed the limit together. An allocation is counted
 * until it is freed, wherever its bytes are meanwhile.
 */
#include "memory/limit.h"

#include "driver/devices.h"
#include "memory/claims.h"
#include "memory/reclaim.h"
#include "memory/used.h"
#include "tenant/tenant.h"

void limit_add(CUdevice device, uint64_t size)
{
	used_add(device, (int64_t)size);
}

void limit_give(CUdevice device, uint64_t size)
{
	used_add(device, -(int64_t)size);
	if (device_is_number(device))
		claim_freed(device);
}

/* Before it fails it frees memory that is kept for later allocations or could not be freed yet. */
CUresult limit_take(CUdevice device, uint64_t size)
{
	const uint8_t *uuid = device_uuid(device);
	uint64_t limit, others;
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
		others = tenant_others(uuid);
		if (used_take(device, size, limit > others ? limit - others : 0)) {
			if (!claim_cover(device, limit))
				return CUDA_SUCCESS;
			limit_give(device, size);
		}
		memory_reclaim(true);
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}
