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
	/* Of ours alone: */
	bool stays;
	bool written;            /* it has been mapped */
	struct mapping *swapped; /* a block has the driver's handles */
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
	bool foreign_access; /* it has been given to what is no device of ours */
};

extern struct lock vmm_lock; /* of all of them */
/* With the lock held: */
struct physical *vmm_find(CUmemGenericAllocationHandle handle);
struct mapping *vmm_at(CUdeviceptr address); /* anywhere in one */
bool vmm_ours(const struct physical *physical);
bool vmm_enter(struct physical *physical);   /* its handle is known from now on */
void vmm_release(struct physical *physical); /* one of its handles */
bool vmm_hold(struct physical *physical);    /* one more; false: no host memory */
void vmm_release_pieces(struct physical *physical);
struct mapping *vmm_mapped(CUdeviceptr base, size_t size, size_t offset, struct physical *physical);
void vmm_unmapped(CUdeviceptr base, size_t size);
/* A part of it, or all, at these addresses. */
CUresult vmm_map(const struct physical *physical, CUdeviceptr base, size_t size, size_t offset,
                 unsigned long long flags);
void vmm_lend(struct mapping *mapping); /* to a block, if it may move */
/* Without it: what is away comes, and no block has any of it. */
CUresult vmm_take_back(CUdeviceptr base, size_t size);
CUresult vmm_take_back_handle(CUmemGenericAllocationHandle handle);

#endif
