/* vmm.h: physical memory that the program creates and maps by itself. */
#ifndef GPU_LEASE_VMM_H
#define GPU_LEASE_VMM_H

#include "memory/swap/devices.h"

/* refs: how often the handle must be released; maps: places where it is mapped. */
struct physical {
	CUmemGenericAllocationHandle handle;
	size_t size;
	CUdevice device;
	unsigned int refs, maps;
	/* Only for memory whose handle is ours: */
	bool stays;
	bool written;            /* it has been mapped, so its bytes count */
	struct mapping *swapped; /* the mapping whose block has the driver's handles */
	CUmemAllocationProp prop;
	struct mapping *mappings; /* of it, all */
	unsigned int n;
	CUmemGenericAllocationHandle pieces[]; /* the driver's handles, one where it is whole */
};

struct mapping {
	CUdeviceptr base;
	size_t size, offset; /* in the physical memory */
	struct physical *physical;
	struct mapping *next; /* of the same physical memory */
	struct block *block;
	uint64_t writers,
	    readers;         /* devices that may read and write it, or read only; a bit each */
	bool foreign_access; /* something other than a device of this process may reach it */
};

extern struct lock vmm_lock; /* guards all physical memory and mappings */
/* Caller holds vmm_lock: */
struct physical *vmm_find(CUmemGenericAllocationHandle handle);
struct mapping *vmm_at(CUdeviceptr address); /* the mapping that the address lies in */
bool vmm_ours(const struct physical *physical);
bool vmm_enter(struct physical *physical);   /* makes its handle known; false: no host memory */
void vmm_release(struct physical *physical); /* gives up one of its handles */
bool vmm_hold(struct physical *physical); /* takes one more handle of it; false: no host memory */
void vmm_release_pieces(struct physical *physical);
struct mapping *vmm_mapped(CUdeviceptr base, size_t size, size_t offset, struct physical *physical);
void vmm_unmapped(CUdeviceptr base, size_t size);
/* Maps a part of it, or all, at these addresses. */
CUresult vmm_map(const struct physical *physical, CUdeviceptr base, size_t size, size_t offset,
                 unsigned long long flags);
void vmm_lend(struct mapping *mapping); /* makes a block of it, if it may move */
/* Caller does not hold vmm_lock. No block has any of the memory afterwards; waits until what is
 * away is back. */
CUresult vmm_take_back(CUdeviceptr base, size_t size);
CUresult vmm_take_back_handle(CUmemGenericAllocationHandle handle);

#endif
