/* devices.h: swapped memory as data: segments, blocks and devices, with their lock.
 *
 * An allocation is a block of addresses that never change. It is divided into segments. A segment
 * has physical memory (RESIDENT), or its bytes are in a store (AWAY), or it has no bytes yet
 * (ABSENT). Small allocations share a block, a slab. Memory that the program has mapped itself is a
 * block as well (vmm.h); its segments have the properties that the program has asked for.
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

/* Instead of a number of submissions: the bytes may have changed at any time. */
#define SWAP_CHANGED ULONG_MAX

enum segment_state {
	SEGMENT_ABSENT,   /* no physical memory, and no bytes to keep */
	SEGMENT_RESIDENT, /* on the device */
	SEGMENT_AWAY      /* its bytes are in a store */
};

/* What fingerprints tell of a segment and its copy (clean_check.h). */
struct clean_state {
	struct fingerprint device_print; /* of the segment's bytes, */
	unsigned long checked_at;        /* at this gate_submitted(), or SWAP_CHANGED */
	struct fingerprint copy_print;   /* of the copy's bytes, if copy_known */
	bool copy_known;
	unsigned char times_changed; /* in a row; from the second on the value grows fourfold */
	unsigned char skips;         /* evictions until the segment is checked again */
};

struct segment {
	struct segment *older, *newer; /* of the same device, in the order of allocation */
	struct block *block;
	CUdeviceptr base;
	size_t size; /* bytes */
	enum segment_state state;
	CUmemGenericAllocationHandle handle; /* of its physical memory */
	/* In a store, or NULL. Of an AWAY segment it holds the bytes; of a RESIDENT one the bytes
	 * that the segment had at `unchanged_at`. */
	struct copy *copy;
	/* gate_submitted() when the segment became RESIDENT, or SWAP_CHANGED. While no more work
	 * than that is submitted the copy is current. */
	unsigned long unchanged_at;
	struct clean_state clean;
	bool moving;   /* the client thread is copying it, or computing its fingerprint */
	bool fixed;    /* it cannot be evicted: it is shared, or could not be copied */
	bool unhosted; /* of a fixed one: there was no host memory for its copy */
};

struct block {
	CUdeviceptr base;
	size_t size; /* bytes */
	CUdevice device;
	unsigned long number; /* unique among the blocks of the process */
	struct slab *slab;    /* NULL: the block is one allocation */
	const CUmemAllocationProp
	    *prop;                /* of memory that the program has mapped itself, else NULL */
	uint64_t access;          /* of such memory: a bit for each device that may reach it */
	bool shared;              /* other processes may have it mapped, so it is fixed */
	bool doomed;              /* block_forget() was called; it ends when n_moving is 0 */
	unsigned int n_moving, n; /* segments that are being moved, and all */
	struct segment segments[];
};

struct swap_device {
	/* Set after the next four fields, which never change then. It is read without the lock. */
	atomic_bool asked;
	bool usable;     /* its memory can be swapped */
	bool exportable; /* its memory can be passed to other processes */
	size_t unit;     /* bytes: the granularity of physical memory and of its addresses */
	size_t piece;    /* bytes: the size of the largest segment */
	uint64_t peers;  /* a bit for each device that may reach its memory */
	struct segment *oldest, *newest;
	/* Where evicting goes on towards the newest segment, and restoring towards the oldest. */
	struct segment *evict_cursor, *restore_cursor;
	uint64_t bytes, resident, fixed; /* bytes of all blocks, and of such segments */
	unsigned long missing;           /* segments that are not RESIDENT */
	unsigned long moving;            /* segments with `moving` */
	struct slab *slabs;
};

/* Guards all blocks, segments and devices, and all_resident. */
extern struct lock swap_lock;
extern struct swap_device swap_devices[MAX_DEVICES];
/* All swapped memory is on its devices, and new blocks get memory at once (residency.h). */
extern bool all_resident;

/* Any thread may call these; the caller does not hold swap_lock for the last one. */
bool swap_used(void); /* has the process ever had a block? */
void swap_set_used(void);
uint64_t swap_bytes(CUdevice device); /* of all blocks on the device */

#endif
