/* vmm.h: physical memory that the program creates and maps itself (cuMemCreate, cuMemMap).
 *
 * Threads of the program call these functions.
 */
#ifndef GPU_LEASE_VMM_H
#define GPU_LEASE_VMM_H

#include "memory/swap/lane.h"

struct physical {
	CUmemGenericAllocationHandle handle; /* as the program knows it */
	size_t size;                         /* bytes */
	CUdevice device;
	unsigned int refs; /* how often the handle must be released */
	unsigned int maps; /* at how many places the memory is mapped */
	/* The rest is set only for memory whose handle is ours. */
	bool stays;              /* it must not become a block */
	bool written;            /* it has been mapped, so its bytes must be kept */
	struct mapping *swapped; /* the mapping whose block has the driver's handles, or NULL */
	CUmemAllocationProp prop;
	struct mapping *mappings; /* all mappings of it */
	/* The driver's handles: one if the memory is one object, else one for each piece. */
	unsigned int n;
	CUmemGenericAllocationHandle pieces[];
};

struct mapping {
	CUdeviceptr base;
	size_t size, offset; /* bytes; the offset is that in the physical memory */
	struct physical *physical;
	struct mapping *next; /* of the same physical memory */
	struct block *block;  /* made of it, or NULL */
	/* Devices, a bit each, that may read and write, and that may only read. */
	uint64_t writers, readers;
	bool foreign_access; /* something other than a device of this process may reach it */
};

extern struct lock vmm_lock; /* guards all physical memory and mappings */

/* -- the caller holds vmm_lock ------------------------------------------------------ */

struct physical *vmm_find(CUmemGenericAllocationHandle handle);
/* The mapping that the address lies in, or NULL. */
struct mapping *vmm_at(CUdeviceptr address);
/* Is the memory's handle ours, not the driver's? */
bool vmm_ours(const struct physical *physical);
/* Makes vmm_find() find the memory. Returns false if the host is out of memory. */
bool vmm_enter(struct physical *physical);
/* Releases its handle once, and frees what is neither retained nor mapped. */
void vmm_release(struct physical *physical);
/* The handle must be released once more. Returns false if the host is out of memory. */
bool vmm_retain(struct physical *physical);
/* Releases the driver's handles. */
void vmm_release_pieces(struct physical *physical);
/* The memory is mapped there now. Returns NULL if the host is out of memory. */
struct mapping *vmm_mapped(CUdeviceptr base, size_t size, size_t offset, struct physical *physical);
/* All mappings in the range have been unmapped. */
void vmm_unmapped(CUdeviceptr base, size_t size);
/* Maps `size` bytes of the memory, from `offset` on. */
CUresult vmm_map(const struct physical *physical, CUdeviceptr base, size_t size, size_t offset,
                 unsigned long long flags);
/* Makes a block of the mapping, if its memory may be swapped. */
void vmm_make_block(struct mapping *mapping);

/* -- the caller does not hold vmm_lock ------------------------------------------------ */

/* Ends the blocks of all memory in the range, or of the handle's memory, which is then plain. Waits
 * until evicted memory is restored. CUDA_ERROR_NOT_READY: it was not within EVICTION_WAIT_NS; other
 * errors are those of gate_enter_for_memory(). */
CUresult vmm_take_back(CUdeviceptr base, size_t size);
CUresult vmm_take_back_handle(CUmemGenericAllocationHandle handle);

#endif
