/* shortage.c: retries an allocation of the driver's while other jobs' swapped memory fills the
 * device. */
#include "memory/shortage.h"

#include "base/clock.h"
#include "base/debug.h"
#include "driver/devices.h"
#include "gate/gate.h"
#include "memory/ranges.h"

#include <stdatomic.h>

static atomic_bool daemon_away;

void shortage_daemon_away(bool away)
{
	atomic_store(&daemon_away, away);
}

static bool report_shortage(struct shortage *shortage, CUdevice device, uint64_t size)
{
	if (!size || !device_uuid(device))
		return false;
	shortage->bytes = (int64_t)size;
	memory_count(device, MEMORY_fixed, shortage->bytes);
	debug("device %d has no free memory for %llu KiB: other jobs have to evict some", device,
	      (unsigned long long)size >> 10);
	return true;
}

bool shortage_pause(uint64_t *since)
{
	if (atomic_load(&daemon_away))
		*since = now_ns();
	if (now_ns() - *since >= EVICTION_WAIT_NS)
		return false;
	pause_us(EVICTION_PAUSE_US);
	return true;
}

/* The bytes that are needed count as fixed memory meanwhile. When the process has the lease, the
 * other jobs have been told to evict, but may not have finished. */
bool shortage_wait(struct shortage *shortage, CUresult result, CUdevice device, uint64_t size)
{
	uint64_t asked = now_ns(); /* time without a lease does not count */
	bool more = result == CUDA_ERROR_OUT_OF_MEMORY &&
	            (shortage->bytes || report_shortage(shortage, device, size)) &&
	            !gate_wait(false);

	shortage->since = shortage->since ? shortage->since + now_ns() - asked : now_ns();
	if (more && shortage_pause(&shortage->since))
		return true;
	if (shortage->bytes)
		memory_count(device, MEMORY_fixed, -shortage->bytes);
	return false;
}
