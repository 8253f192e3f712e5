/* lane.h: a lane is what the process has on one GPU, and what moves there; its memory is data here:
 * segments and blocks.
 *
 * An allocation is a block of addresses that never change. It is divided into segments. A segment
 * has physical memory (RESIDENT), or its bytes are in a store (AWAY), or it has no bytes yet
 * (ABSENT). Small allocations share a block, a slab. Memory that the program has mapped itself is a
 * block as well (vmm.h); its segments have the properties that the program has asked for.
 *
 * No lane waits for another one: each has its own mode, stream and copies, and the client thread
 * takes a step of each.
 */
#ifndef GPU_LEASE_SWAP_LANE_H
#define GPU_LEASE_SWAP_LANE_H

#include "base/wire.h"
#include "driver/devices.h"
#include "memory/store/store.h"
#include "memory/swap/clean_check.h"
#include "memory/swap/copier.h"
#include "memory/swap/fingerprint.h"

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
	struct segment *older, *newer; /* of the same lane, in the order of allocation */
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
	struct lane *lane;
	unsigned long number; /* unique among the blocks of the process */
	struct slab *slab;    /* NULL: the block is one allocation */
	const CUmemAllocationProp
	    *prop;                /* of memory that the program has mapped itself, else NULL */
	uint64_t access;          /* of such memory: a bit for each device that may reach it */
	bool shared;              /* other processes may have it mapped, so it is fixed */
	bool lent;                /* others have it mapped while the job has its lease, and write */
	bool doomed;              /* lane_leave() was called; it ends when n_moving is 0 */
	unsigned int n_moving, n; /* segments that are being moved, and all */
	struct segment segments[];
};

#define LANE_PAUSE_NS 50000 /* between two steps while bytes are on their way */

enum lane_mode { LANE_IDLE, LANE_RESTORING, LANE_PRELOADING, LANE_EVICTING };

struct lane {
	CUdevice device;
	/* Set after the next four fields, which never change then. It is read without the lock. */
	atomic_bool asked;
	bool usable;     /* the device's memory can be swapped */
	bool exportable; /* it can be passed to other processes */
	size_t unit;     /* bytes: the granularity of physical memory and of its addresses */
	size_t piece;    /* bytes: the size of the largest segment */

	/* -- under swap_lock ------------------------------------------------------------- */

	uint64_t peers; /* a bit for each device that may reach the memory */
	struct segment *oldest, *newest;
	/* Where evicting goes on towards the newest segment, and restoring towards the oldest. */
	struct segment *evict_cursor, *restore_cursor;
	uint64_t bytes, resident, fixed; /* bytes of all blocks, and of such segments */
	unsigned long missing;           /* segments that are not RESIDENT */
	unsigned long moving;            /* segments with `moving` */
	struct slab *slabs;

	/* -- of the client thread; one whose context ends reads the mode and counts bytes -- */

	_Atomic(enum lane_mode) mode;
	atomic_bool restore_failed; /* evicted memory cannot be restored */
	bool busy;                  /* the last step left something to do */
	bool stays;          /* memory stays since it could not be copied, which is tried again */
	int64_t pause_ns;    /* until the next step */
	uint64_t bytes_left; /* still to be evicted, or to be preloaded */
	uint64_t bytes_preload; /* to be preloaded when the eviction has ended */
	size_t free_bytes;      /* free memory of the device when it was last asked for, */
	uint64_t free_since;    /* and when, in ns, that number last changed */
	uint64_t restored_at;   /* when, in ns, a segment was last mapped, or restoring began */
	/* Bytes since the mode was set: all, and those that had to be copied. */
	struct {
		_Atomic uint64_t evicted, copied_to_host, restored, copied_to_device;
	} moved;
	_Atomic uint64_t evicted_clean; /* bytes without a copy since they were last reported */
	struct copier copier;
	struct check check;
};

/* Guards all blocks, segments and lanes: one lock, since an address may be in any of them, and a
 * residency begins on all. */
extern struct lock swap_lock;
extern struct lane lanes[MAX_DEVICES];

#define for_each_lane(lane) for (struct lane *lane = lanes; lane < lanes + MAX_DEVICES; lane++)

static inline struct lane *lane_of(CUdevice device)
{
	return &lanes[device];
}

/* -- any thread, without swap_lock ------------------------------------------------ */

/* Says what the driver has answered, unless that has been said already. */
void lane_set_up(struct lane *lane, CUdevice device, bool usable, bool exportable, size_t unit,
                 size_t piece);
bool swap_used(void);     /* has the process ever had a block, or one of another process? */
void swap_note_use(void); /* it will have one of another process */
uint64_t lane_bytes(struct lane *lane); /* of all blocks */
bool lane_misses(struct lane *lane);    /* is a segment not resident? */
/* What struct memory_kind promises of `report` and `explain`, but for `clean`. */
void lane_report(CUdevice device, struct gl_device *out);
void lane_explain(CUdevice device, struct gl_details *out);

/* Calls `what` for the lanes that are named, with their amounts in bytes, and adds up its answers.
 * Of the client thread. */
uint64_t lanes_named(const struct gl_memory *amounts,
                     uint64_t (*what)(struct lane *lane, uint64_t bytes));

/* -- residency ---------------------------------------------------------------------
 *
 * A residency is a time in which all swapped memory is on its devices and stays there. It lasts
 * from the end of a restore until the gate is shut and all work has finished. New blocks get
 * physical memory at once meanwhile. */

/* Does a residency last now? Any thread may ask; the caller does not hold swap_lock. */
bool residency_lasts(void);
/* Of the client thread, without swap_lock. Begins a residency if every segment is on its device, or
 * its lane has failed to restore it. Returns false if not, or if segments are being moved. */
bool residency_begin(void);
/* Of the client thread, without swap_lock: from now on segments may be evicted, once no thread is
 * inside the gate. Returns false if the process has no swapped memory. */
bool residency_end(void);

/* -- the caller holds swap_lock ------------------------------------------------------ */

/* The same as residency_lasts(). */
bool residency_now(void);
/* The block's segments are the newest of its lane from now on, or are not there any more. */
void lane_enter(struct block *block);
void lane_leave(struct block *block);
/* The segment's bytes are on the device. */
void segment_set_resident(struct segment *segment);
/* The segment's bytes, which are on the device, equal those of its copy. */
void segment_unchanged_now(struct segment *segment);
/* The segment has no physical memory any more; its state is AWAY or ABSENT. */
void segment_set_gone(struct segment *segment, enum segment_state state);
void segment_set_fixed(struct segment *segment, bool fixed);
/* Is the segment known to equal its copy? The caller may also be moving it. */
bool segment_is_clean(const struct segment *segment);
/* The client thread begins to move the segment; moves.h ends that. */
void segment_begin_move(struct segment *segment);

#endif
