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
	unsigned long id; /* unique among the allocations of the process */
};

struct memory_kind;

/* An allocation, as ranges.c knows it. */
struct memory_range {
	size_t size;
	CUdevice device;
	const struct memory_kind *kind;
	CUmemoryPool pool;
	CUcontext context; /* that it ends with */
	bool freed;        /* the program has freed it in stream order; free_blocks.c keeps it */
};

struct memory_kind {
	const char *name;
	enum memory_row row; /* MEMORY_NAME */

	/* The kind counts its bytes against the limit by itself; else ranges.c does. */
	bool limits_itself;
	/* An allocation does not end with its context: it is freed after the context has ended. */
	bool outlives_contexts;
	/* Allocations in stream order come from the driver's own pools, and the driver frees them.
	 */
	bool in_driver_pools;

	/* May allocations on the device be of this kind? */
	bool (*serves)(CUdevice device);
	/* On a device that the kind serves; size is not 0. After an error nothing is allocated. */
	CUresult (*allocate)(CUdeviceptr *out, size_t size, CUdevice device);
	/* The range has been forgotten before. wait: until no work can use it. */
	CUresult (*free)(CUdeviceptr base, const struct memory_range *range, bool wait);

	/* The rest may be NULL. */
	/* Which allocation does the address lie in? False, or no function: ask the driver. */
	bool (*find)(CUdeviceptr pointer, struct memory_place *out);
	/* Adds to `out` what there is on the device. */
	void (*report)(CUdevice device, struct gl_device *out);
	/* Adds to `out` why what is fixed is so, and what has left since it was asked before. */
	void (*explain)(CUdevice device, struct gl_details *out);
	/* Gives up memory that is kept without need. */
	void (*reclaim)(bool wait);
	/* The context is about to end. Caller holds the lock of contexts.c. */
	void (*context_ends)(CUcontext context);
	/* The context has ended, and its ranges have been forgotten. */
	void (*context_gone)(CUcontext context);
	const struct mover *mover;
};

#define KIND(name) extern const struct memory_kind name##_memory;
MEMORY_KINDS(KIND)
#undef KIND

#endif
