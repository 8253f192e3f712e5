/* devices.h: memory whose bytes we move ourselves (memory:swap), by device.
 *
 * An allocation is a block of addresses that never change, cut into segments;
 * each segment has physical memory, or its bytes are in a store, or it has
 * never had any. Small allocations share a block, a slab. What the program has
 * mapped itself is a block as well (vmm.c), with its own handles' properties.
 */
#ifndef GPU_LEASE_SWAP_DEVICES_H
#define GPU_LEASE_SWAP_DEVICES_H

#include "driver/devices.h"
#include "memory/swap/store.h"

#include <cuda.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SWAP_DIRTY ULONG_MAX /* not known to be as its copy is */

enum segment_state {
	SEGMENT_ABSENT,   /* no physical memory, and nothing to keep */
	SEGMENT_RESIDENT, /* on the device */
	SEGMENT_AWAY      /* its bytes are in a store */
};

struct segment {
	struct segment *older, *newer; /* of its device, in the order of allocation */
	struct block *block;
	CUdeviceptr base;
	size_t size;
	enum segment_state state;
	CUmemGenericAllocationHandle handle; /* of its physical memory */
	struct copy *copy;   /* in a store; the bytes of an AWAY one, else as of `calls` */
	unsigned long calls; /* gate_submitted() when it became RESIDENT, or SWAP_DIRTY */
	bool moving;         /* the client thread is at it */
	bool fixed;          /* there was no host memory for it */
};

struct block {
	CUdeviceptr base;
	size_t size;
	CUdevice device;
	unsigned long number;            /* allocations are counted */
	struct slab *slab;               /* NULL: one allocation */
	const CUmemAllocationProp *prop; /* of what the program has mapped itself, else NULL */
	uint64_t access;                 /* of such: devices that may reach it, a bit each */
	bool shared;                     /* other processes may have it mapped: it stays */
	bool doomed;                     /* freed; what still moves is waited for */
	unsigned int n_moving, n;
	struct segment segments[];
};

struct swap_device {
	/* Set after the next four, which stay as they are then; read without the lock. */
	atomic_bool asked;
	bool usable;
	bool exportable; /* its memory can be passed to other processes */
	size_t unit;     /* of physical memory and its addresses */
	size_t piece;    /* the largest segment; about so much is mapped or let go together */
	uint64_t peers;  /* devices that may reach its memory, a bit each */
	struct segment *oldest, *newest;
	struct segment *next_out, *next_in; /* where eviction and restoring go on */
	uint64_t bytes, resident, fixed;
	unsigned long missing; /* segments without physical memory, or still coming */
	unsigned long moving;  /* segments that the client thread is at, those that leave too */
	struct slab *slabs;
};

extern struct lock swap_lock; /* of all blocks, segments and devices, and of swap_held */
extern struct swap_device swap_devices[MAX_DEVICES];
extern bool swap_held; /* all is on the devices: allocations get memory at once */

bool swap_used(void); /* has there been any block? */
void swap_set_used(void);
uint64_t swap_bytes(CUdevice device);

#endif
