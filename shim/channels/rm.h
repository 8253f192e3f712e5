/* rm.h: what the driver's library and the kernel's module say to each other about channel groups:
 * calls of ioctl with the type 'F' on /dev/nvidiactl. Numbers and layouts are facts of NVIDIA's
 * open kernel modules (nvos.h, nv_escape.h, ctrla06c.h, ctrl2080fifo.h, ctrl2080gpu.h).
 */
#ifndef GPU_LEASE_RM_H
#define GPU_LEASE_RM_H

#include <stdint.h>

#define RM_TYPE 'F'

enum rm_call { RM_FREE = 0x29, RM_CONTROL = 0x2A, RM_ALLOC = 0x2B };

/* A new object; its class says of what kind. Older libraries use the short form. */
struct rm_alloc {
	uint32_t client, parent, object, class;
	uint64_t parameters;
	union {
		struct {
			uint32_t size, status;
		} short_form;
		struct {
			uint64_t rights;
			uint32_t size, flags, status, zero;
		} long_form;
	};
};
#define RM_ALLOC_SHORT 32
#define RM_ALLOC_LONG 48

struct rm_free {
	uint32_t client, parent, object, status;
};

struct rm_control {
	uint32_t client, object, command, flags;
	uint64_t parameters;
	uint32_t size, status;
};

enum rm_class {
	RM_SUBDEVICE = 0x2080, /* a child of a device */
	RM_GROUP = 0xA06C,     /* a channel group, a child of a device */
	RM_CHANNEL_BYTE = 0x6F /* the last byte of the class of channels, of every chip */
};

/* The parameters of a new group, as far as they are looked at. */
struct rm_group {
	uint32_t words[3];
	uint32_t engine;
};
#define RM_ENGINE_COMPUTE 1

enum rm_command {
	RM_SCHEDULE = 0xA06C0101,
	RM_SET_SLICE = 0xA06C0103, /* uint64_t: us */
	RM_GET_SLICE = 0xA06C0104,
	RM_DISABLE_CHANNELS = 0x2080110B, /* of a subdevice */
	RM_GET_GID = 0x2080014A           /* of a subdevice: the UUID of the GPU */
};

#define RM_LISTED 64 /* the most channels that one call takes off, or puts back */
struct rm_disable {
	uint8_t disable;
	uint32_t n;
	uint8_t only_scheduling, rewind;
	uint64_t event __attribute__((aligned(8)));
	uint32_t clients[RM_LISTED], channels[RM_LISTED];
};

#define RM_GID_BINARY 2
struct rm_gid {
	uint32_t index, flags, length;
	uint8_t data[256];
};

_Static_assert(sizeof(struct rm_alloc) == RM_ALLOC_LONG, "layout of the driver");
_Static_assert(sizeof(struct rm_free) == 16, "layout of the driver");
_Static_assert(sizeof(struct rm_control) == 32, "layout of the driver");
_Static_assert(sizeof(struct rm_disable) == 536, "layout of the driver");
_Static_assert(sizeof(struct rm_gid) == 268, "layout of the driver");

#endif
