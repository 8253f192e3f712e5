/* room.h: what the driver allocates as plain memory it may refuse because others' swapped memory
 * fills the device. Then they are asked to make room, as for allocations of ours. */
#ifndef GPU_LEASE_ROOM_H
#define GPU_LEASE_ROOM_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define ROOM_NS (UINT64_C(10) * 1000000000) /* how long to wait for others to leave */
#define ROOM_PAUSE_US 500

struct wanted_room {
	int64_t bytes;
	uint64_t since;
};
bool room_appears(struct wanted_room *wanted, CUresult result, CUdevice device, uint64_t size);
#define WITH_ROOM(device, bytes, call)                                                             \
	({                                                                                         \
		struct wanted_room wanted = {0};                                                   \
		CUresult called;                                                                   \
		do                                                                                 \
			called = call;                                                             \
		while (room_appears(&wanted, called, device,                                       \
		                    called == CUDA_ERROR_OUT_OF_MEMORY ? (bytes) : 0));            \
		called;                                                                            \
	})

#endif
