/* rm.h: what the real driver's library and its kernel module say to each other about channel
 * groups: calls of ioctl with the type 'F' on /dev/nvidiactl. Numbers and layouts are those of
 * NVIDIA's open kernel modules. */
#ifndef EMUGPU_RM_H
#define EMUGPU_RM_H

#include <stdint.h>
#include <sys/ioctl.h>

#define RM_FREE 0x29
#define RM_CONTROL 0x2A
#define RM_ALLOC 0x2B

struct rm_free {
	uint32_t root, parent, object, status;
};

struct rm_control {
	uint32_t client, object, cmd, flags;
	uint64_t params;
	uint32_t size, status;
};

struct rm_alloc {
	uint32_t root, parent, object, class;
	uint64_t parms, rights;
	uint32_t parms_size, flags, status, pad;
};

enum rm_class {
	RM_CLIENT = 0x41,
	RM_DEVICE = 0x80,
	RM_SUBDEVICE = 0x2080,
	RM_GROUP = 0xA06C,
	RM_CHANNEL = 0xC86F
};

/* Engines of groups, as word 3 of their parameters has them. Copies to the device, copies from it,
 * and one engine that has nothing to do. */
enum rm_engine {
	RM_ENGINE_COMPUTE = 1,
	RM_ENGINE_IN = 11,
	RM_ENGINE_OUT = 12,
	RM_ENGINE_SPARE = 13
};

/* Parameters of RM_GROUP. space: the context's number, which stands for its address space. */
struct rm_group {
	uint32_t error, ecc, space, engine, plugin;
};

/* Parameters of RM_DEVICE, as far as they are looked at: the device as the process counts it. */
struct rm_device {
	uint32_t device;
};

enum rm_command {
	RM_GROUP_SCHEDULE = 0xA06C0101,
	RM_GROUP_SET_SLICE = 0xA06C0103,
	RM_GROUP_GET_SLICE = 0xA06C0104,
	RM_GROUP_PREEMPT = 0xA06C0105,
	RM_GROUP_NUMBER = 0xA06C0106,
	RM_GROUP_INTERLEAVE = 0xA06C0107,
	RM_DISABLE_CHANNELS = 0x2080110B,
	RM_GET_GID = 0x2080014A
};

#define RM_LISTED 64 /* channels that one call stops or starts */

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

enum rm_status {
	RM_OK = 0,
	RM_DUPLICATE = 0x19,
	RM_NO_RESOURCES = 0x1A,
	RM_NOT_PERMITTED = 0x1B,
	RM_INVALID = 0x1F,
	RM_NO_CLASS = 0x22,
	RM_NOT_SUPPORTED = 0x56,
	RM_NOT_FOUND = 0x57,
	RM_TIMEOUT = 0x65
};

_Static_assert(sizeof(struct rm_alloc) == 48, "layout");
_Static_assert(sizeof(struct rm_control) == 32, "layout");
_Static_assert(sizeof(struct rm_free) == 16, "layout");
_Static_assert(sizeof(struct rm_disable) == 536, "layout");
_Static_assert(sizeof(struct rm_gid) == 268, "layout");

/* The bytes of a call's struct; 0: there is no such call. */
static inline uint32_t rm_call_size(uint64_t number)
{
	return number == RM_ALLOC     ? sizeof(struct rm_alloc)
	       : number == RM_CONTROL ? sizeof(struct rm_control)
	       : number == RM_FREE    ? sizeof(struct rm_free)
	                              : 0;
}

#endif
