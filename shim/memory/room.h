/* room.h: what the driver allocates as plain memory it may refuse because others' swapped memory
 * fills the device. Then they are asked to make room, as for allocations of ours. */
#ifndef GPU_LEASE_ROOM_H
#define GPU_LEASE_ROOM_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define ROOM_NS (UINT64_C(10) * 1000000000) /* how long to wait for others to leave */
#define ROOM_PAUSE_US 500

/* What a call of the driver's has asked others for; all zero before the first attempt. */
struct wanted_room {
	int64_t bytes;
	uint64_t since;
};
/* After each attempt of such a call. True: there was no room, others have been asked for some
 * and it has been waited for a moment; try again. False: the result stands. */
bool wait_for_room(struct wanted_room *wanted, CUresult result, CUdevice device, uint64_t size);

#endif
