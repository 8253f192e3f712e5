/* shared_map.h: a block of another process, mapped in this one. */
#ifndef GPU_LEASE_SHARED_MAP_H
#define GPU_LEASE_SHARED_MAP_H

#include "memory/shared.h"

/* An allocation, and how often it is open. */
struct opened {
	struct opened *next;
	CUdeviceptr at;
	size_t size;
	unsigned long times;
};

struct import {
	struct import *next;
	uint8_t name[GL_NAME_BYTES];
	uint64_t block;
	CUcontext context;
	CUdevice device;
	CUdeviceptr base;
	size_t size, mapped;
	unsigned long number;
	struct opened *opened;
};

/* What the process at the other end of the connection sends of the block, mapped for the current
 * context. *allocation: bytes of the one that was asked for. */
CUresult import_map(const struct shared_handle *handle, int end, struct import **out,
                    size_t *allocation);
void import_drop(struct import *import); /* unmapped and freed; nobody finds it any more */

#endif
