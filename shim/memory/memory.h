/* memory.h: what this process has of device memory. */
#ifndef GPU_LEASE_MEMORY_H
#define GPU_LEASE_MEMORY_H

#include "base/wire.h"
#include "driver/lookup.h"

#define ROOM_NS (UINT64_C(10) * 1000000000) /* how long to wait for others to leave */
#define ROOM_PAUSE_US 500

struct memory_kind; /* kind.h */

struct memory_range {
	size_t size;
	CUdevice device;
	const struct memory_kind *kind;
	CUmemoryPool pool;
	CUcontext context; /* that it ends with */
	bool freed;        /* by the program, in stream order: it is kept for the next one */
};

/* limit.c: bytes of the limit, before they are allocated and until they are freed. */
CUresult limit_take(CUdevice device, uint64_t size); /* or the driver's own error: too many */
void limit_add(CUdevice device, uint64_t size);      /* they are there already */
void limit_give(CUdevice device, uint64_t size);
uint64_t memory_used(CUdevice device);

/* ranges.c. Ranges are known by their first address; a handle that is a pointer will do.
 * A range's bytes have been taken of the limit, and are given back with the range, unless
 * its kind does so. */
void memory_add(CUdeviceptr base, size_t size, CUdevice device, const struct memory_kind *kind,
                CUmemoryPool pool);
bool memory_find(CUdeviceptr base, struct memory_range *out);
bool memory_remove(CUdeviceptr base, struct memory_range *out); /* out may be NULL */
/* It is freed, or allocated again; what it was. False: nothing is there, or it is so already. */
bool memory_set_freed(CUdeviceptr base, bool freed, struct memory_range *out);
void memory_forget_pool(CUmemoryPool pool); /* it is gone, and what came from it is not */
void memory_forget(CUcontext context);      /* it is gone, with its ranges */
void memory_count(CUdevice device, const struct memory_kind *kind, int64_t bytes);
uint64_t memory_counted(const struct memory_kind *kind, CUdevice device);
struct memory_span {
	CUdeviceptr base;
	size_t size;
	unsigned long number; /* allocations are counted */
};
/* A copy of a kind's allocations on a device, newest first: of what fits not whole, a
 * program is likelier to be at what it made last. To be freed. */
struct memory_span *memory_spans(const struct memory_kind *kind, CUdevice device, size_t *n);

/* room.c. What the driver allocates as plain memory it may refuse because others' swapped memory
 * fills the device. Then they are asked to make room, as for allocations of ours. */
struct wanted_room {
	int64_t bytes;
	uint64_t since;
};
bool room_appears(struct wanted_room *wanted, CUresult result, CUdevice device, uint64_t size);
#define WITH_ROOM(device, bytes, call)                                                             \
	({                                                                                         \
		struct wanted_room wanted = {0};                                                   \
		CUresult called;                                                                   \
		do                                                                                 \
			called = call;                                                             \
		while (room_appears(&wanted, called, device,                                       \
		                    called == CUDA_ERROR_OUT_OF_MEMORY ? (bytes) : 0));            \
		called;                                                                            \
	})
#define TRY_WITH_ROOM(device, bytes, call) TRY(WITH_ROOM(device, bytes, call))

/* swap.c, peers.c: memory that we bring to a device and evict from it. */
bool swap_used(void);                              /* has there been any? */
bool swap_of_program(CUdeviceptr pointer);         /* in what the program has mapped itself */
bool swap_peer(CUdevice memory_of, CUdevice from); /* true: that is news */

bool swap_reach(void); /* what the driver has refused may succeed now */

/* What there is on each device, for the daemon; how many entries. */
uint32_t memory_report(struct gl_device out[GL_MAX_DEVICES]);

/* free_blocks.c: blocks that were freed in stream order, for the next allocation. */
size_t free_block_size(size_t size); /* of a block that serves such an allocation */
/* One that the pool has and the stream may use. False: there is none. */
bool free_block_reuse(CUdeviceptr *pointer, size_t size, CUdevice device, CUmemoryPool pool,
                      CUstream stream);
CUresult free_block_keep(CUdeviceptr pointer, const struct memory_range *range, CUstream stream);
void free_blocks_trim(CUmemoryPool pool, uint64_t most, bool wait); /* pool NULL: all */
void free_blocks_forget(CUcontext context);                         /* it is gone */

/* pools.c */
enum pool_kind {
	POOL_IS_OURS,     /* what comes from it is of the kind that serves the device */
	POOL_STAYS_PLAIN, /* others may import it: counted */
	POOL_NOT_OURS     /* its memory is not on a device */
};
enum pool_kind pool_kind(CUmemoryPool pool);
CUdevice pool_device(CUmemoryPool pool, CUdevice otherwise);
void pool_change(CUmemoryPool pool, int64_t used, int64_t kept); /* by so many bytes */
uint64_t pool_kept(CUmemoryPool pool);                           /* NULL: of all */
uint64_t pool_threshold(CUmemoryPool pool);

#endif
