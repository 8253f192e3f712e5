/* shared_map.h: a block of another process, mapped in this one. */
#ifndef GPU_LEASE_SHARED_MAP_H
#define GPU_LEASE_SHARED_MAP_H

#include "memory/shared.h"

/* An allocation of the block that the program has opened. */
struct opened {
	struct opened *next;
	CUdeviceptr at;
	size_t size;         /* bytes */
	unsigned long times; /* how often it is open */
};

struct import {
	struct import *next;
	uint8_t name[GL_NAME_BYTES]; /* of the process that has the block */
	uint64_t block;              /* its number there */
	CUcontext context;           /* that it was opened in */
	CUdevice device;             /* that the memory is on */
	CUdeviceptr base;
	size_t size, mapped;  /* bytes of the block, and those that are mapped so far */
	uint64_t devices;     /* a bit for each that may reach it */
	uint64_t offset;      /* of an allocation in it, by which it is asked for again */
	bool lent;            /* it is unmapped before each release of the lease */
	bool mapping;         /* it is being mapped again, by a thread that drops it if `dropped` */
	bool dropped, lost;   /* lost: it cannot be mapped again */
	unsigned long number; /* unique among the imports of the process */
	struct opened *opened;
};

/* Maps a block in the current context, as the process at the other end of the socket sends it.
 * *allocation: bytes of the allocation that was asked for. A thread of the program calls it,
 * without locks, and waits for the other process. Errors: CUDA_ERROR_INVALID_VALUE if that process
 * has ended, refuses or sends nonsense; CUDA_ERROR_MAP_FAILED if it does not answer, or mapping
 * fails; CUDA_ERROR_OUT_OF_MEMORY if the host has no memory. */
CUresult import_map(const struct shared_handle *handle, int end, struct import **out,
                    size_t *allocation);
/* Maps it once more, at its addresses. The same errors. */
CUresult import_map_again(struct import *import, int end);
/* Gives up its physical memory, but not its addresses. */
void import_unmap(struct import *import);
/* Unmaps and frees an import that is in no list any more. */
void import_drop(struct import *import);

#endif
