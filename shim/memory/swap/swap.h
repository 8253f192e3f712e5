/* swap.h: memory whose bytes we move ourselves (memory:swap).
 *
 * An allocation is a block of addresses that never change, cut into segments;
 * each segment has physical memory, or its bytes are in a store, or it has
 * never had any. Small allocations share a block, a slab. What the program has
 * mapped itself is a block as well (vmm.c), with its own handles' properties.
 */
#ifndef GPU_LEASE_SWAP_H
#define GPU_LEASE_SWAP_H

#include "driver/devices.h"
#include "memory/memory.h"
#include "memory/mover.h"
#include "memory/swap/store.h"

#include <limits.h>

#define SWAP_SMALL (UINT64_C(1) << 20)   /* below it allocations share slabs */
#define SWAP_PIECE (UINT64_C(256) << 20) /* no segment is larger */
#define SWAP_PARTS 32                    /* of what a job may have, at least */
#define SWAP_DIRTY ULONG_MAX             /* not known to be as its copy is */

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

/* blocks.c */
extern struct lock swap_lock; /* of all blocks, segments and devices, and of swap_held */
extern struct swap_device swap_devices[MAX_DEVICES];
extern bool swap_held; /* all is on the devices: allocations get memory at once */

/* segments.c */
CUmemAllocationProp segment_properties(CUdevice device);
void segment_leave(struct segment *segment); /* without the lock: its mapping and memory end */
/* Callers hold swap_lock: */
void segment_link(struct segment *segment); /* the newest of its device */
void segment_unlink(struct segment *segment);
CUresult segments_allow(CUdeviceptr base, size_t size, uint64_t devices); /* a bit each */
/* Can both be given access at once, it and the older one beside it? */
bool segments_join(const struct segment *segment);
/* Physical memory for so many that join, from the newest down; mapped. How many got it. */
unsigned int segments_bring(struct segment *newest, unsigned int n, CUresult *result);
void segment_landed(struct segment *segment); /* it is RESIDENT */
void segment_left(struct segment *segment, enum segment_state state);
void segment_fix(struct segment *segment, bool fixed);
void segment_moves(struct segment *segment);
struct block *segment_moved(struct segment *segment); /* a block to be ended, or NULL */

/* blocks.c. Callers hold swap_lock: */
struct block *block_find(CUdeviceptr pointer);
void block_forget(struct block *block); /* then block_end(), when nothing of it moves */
/* Without the lock: */
CUresult block_make(size_t size, CUdevice device, struct block **out); /* size: whole units */
void block_drop(struct block *block);
/* What the program has mapped, with a handle for each piece; it is there. NULL: no memory. */
struct block *block_adopt(CUdeviceptr base, size_t size, CUdevice device,
                          const CUmemAllocationProp *prop,
                          const CUmemGenericAllocationHandle *handles, uint64_t access);
/* The handles of now, and the end of the block; false: some of it is away, or moves. */
bool block_return(struct block *block, CUmemGenericAllocationHandle *handles);
void block_end(struct block *block);

/* swap.c */
bool swap_hold(bool force); /* if all is there, or nevertheless */
/* For the work that the context was given; false: a capture forbids it. */
bool swap_wait_for(CUcontext context, CUresult *result);
bool swap_let_go(void); /* from now on memory may leave; false: there is none */
uint64_t swap_bytes(CUdevice device);
void swap_catch_up(bool wait); /* frees what had to be put off */

/* mover.c */
extern const struct mover swap_mover;

/* copier.c */
void swap_context_ends(CUcontext context);

/* slabs.c */
bool slab_take(CUdevice device, size_t size, CUdeviceptr *out); /* from those that there are */
size_t slab_next_size(CUdevice device);
CUresult slab_add(struct block *block);
bool slab_give(struct slab *slab, CUdeviceptr pointer, size_t size); /* it is empty now */
void slab_forget(struct block *block);
CUdeviceptr slab_start(struct slab *slab, CUdeviceptr pointer); /* 0: nothing is there */

/* hostroom.c */
bool host_has_room(uint64_t size); /* in the cgroups of this process */

#endif
