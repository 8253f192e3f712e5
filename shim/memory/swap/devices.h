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
#include "memory/swap/fingerprint.h"
#include "memory/swap/store.h"

#include <cuda.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SWAP_DIRTY ULONG_MAX /* the copy, if there is one, is not known to be current */

enum segment_state {
	SEGMENT_ABSENT,   /* no physical memory, and no bytes to keep */
	SEGMENT_RESIDENT, /* on the device */
	SEGMENT_AWAY      /* its bytes are in a store */
};

/* What is known of a segment's bytes, and of its copy's (looks.h). */
struct look {
	struct fingerprint of_device;
	unsigned long calls; /* gate_submitted() when that was so, or SWAP_DIRTY */
	struct fingerprint of_copy;
	bool copy_known;
	unsigned char changes; /* 1, 2, 8, 32: looks in a row have found it changed */
	unsigned char rest;    /* evictions until the next look */
};

struct segment {
	struct segment *older, *newer; /* of its device, in the order of allocation */
	struct block *block;
	CUdeviceptr base;
	size_t size;
	enum segment_state state;
	CUmemGenericAllocationHandle handle; /* of its physical memory */
	struct copy
	    *copy; /* in a store; holds the bytes of an AWAY segment, else those as of `calls` */
	unsigned long calls; /* gate_submitted() when it became RESIDENT, or SWAP_DIRTY */
	struct look look;
	bool moving; /* the client thread is copying it, or looking at it */
	bool fixed;  /* it stays: there was no host memory for a copy */
};

struct block {
	CUdeviceptr base;
	size_t size;
	CUdevice device;
	unsigned long number; /* allocations are counted */
	struct slab *slab;    /* NULL: one allocation */
	const CUmemAllocationProp
	    *prop;       /* of memory that the program has mapped itself, else NULL */
	uint64_t access; /* of such memory: devices that may reach it, a bit each */
	bool shared;     /* other processes may have it mapped, so it stays */
	bool doomed;     /* it is freed, and ends when no segment of it moves any more */
	unsigned int n_moving, n;
	struct segment segments[];
};

struct swap_device {
	/* Set after the next four, which never change then; read without the lock. */
	atomic_bool asked;
	bool usable;
	bool exportable; /* its memory can be passed to other processes */
	size_t unit;     /* of physical memory and its addresses */
	size_t piece;    /* of the largest segment; about so much is mapped or unmapped together */
	uint64_t peers;  /* devices that may reach its memory, a bit each */
	struct segment *oldest, *newest;
	struct segment *next_out, *next_in; /* where eviction and restoring go on */
	uint64_t bytes, resident, fixed;
	unsigned long missing; /* segments without physical memory, or not yet copied back */
	unsigned long moving;  /* segments that the client thread is copying */
	struct slab *slabs;
};

extern struct lock swap_lock; /* guards all blocks, segments and devices, and swap_held */
extern struct swap_device swap_devices[MAX_DEVICES];
extern bool swap_held; /* all is on the devices, and new allocations get memory at once (hold.h) */

bool swap_used(void); /* has there been any block? */
void swap_set_used(void);
uint64_t swap_bytes(CUdevice device);

#endif
