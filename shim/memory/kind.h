/* kind.h: the kinds of device memory, and what each of them does.
 *
 * Whoever allocates gets the first kind of the list that serves the device; what happens
 * to an allocation afterwards is its kind's. A new kind is one new file, which
 * defines NAME_memory, and one row here. tests/shim/memory/kind_contract.c says what
 * every kind promises.
 */
#ifndef GPU_LEASE_KIND_H
#define GPU_LEASE_KIND_H

#include "base/wire.h"
#include "memory/mover.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#define MEMORY_KINDS(KIND)                                                                         \
	KIND(swapped) /* we move it, whole allocations (swap/) */                                  \
	KIND(managed) /* the driver moves it, page by page */                                      \
	KIND(fixed)   /* it stays where it is, and is counted */

/* The number of a kind, in the order of the list. */
enum memory_row {
#define KIND(name) MEMORY_##name,
	MEMORY_KINDS(KIND)
#undef KIND
	    N_MEMORY_KINDS
};

/* Where an address lies. */
struct memory_place {
	CUdeviceptr base; /* of the allocation */
	size_t size;
	CUdevice device;
	CUcontext context;
	unsigned long id; /* of no other allocation of the process */
};

struct memory_kind;

/* An allocation, as ranges.c knows it. */
struct memory_range {
	size_t size;
	CUdevice device;
	const struct memory_kind *kind;
	CUmemoryPool pool;
	CUcontext context; /* that it ends with */
	bool freed;        /* by the program, in stream order: it is kept for the next one */
};

struct memory_kind {
	const char *name;
	enum memory_row row;

	/* It takes and gives back bytes of the limit by itself; else the range does so. */
	bool limits_itself;
	/* It does not end with its context: it is freed when that is gone. */
	bool outlives_contexts;
	/* In stream order the driver allocates it from its own pools, and frees it. */
	bool in_driver_pools;

	/* May what is allocated on the device be of this kind? */
	bool (*serves)(CUdevice device);
	/* On a device that it serves; size: not 0. On an error nothing of it remains. */
	CUresult (*allocate)(CUdeviceptr *out, size_t size, CUdevice device);
	/* The range is known no more. wait: until no work can use it. */
	CUresult (*free)(CUdeviceptr base, const struct memory_range *range, bool wait);

	/* The rest may be NULL. */
	/* Where in an allocation the address lies; false, or NULL: the driver can tell. */
	bool (*find)(CUdeviceptr pointer, struct memory_place *out);
	/* What there is on the device, added to `out`. */
	void (*report)(CUdevice device, struct gl_device *out);
	/* Give up what is kept without need. */
	void (*reclaim)(bool wait);
	/* The context is about to end; its lock is held. */
	void (*context_ends)(CUcontext context);
	/* It has ended, and its ranges have been forgotten. */
	void (*context_gone)(CUcontext context);
	const struct mover *mover;
};

#define KIND(name) extern const struct memory_kind name##_memory;
MEMORY_KINDS(KIND)
#undef KIND

#endif
