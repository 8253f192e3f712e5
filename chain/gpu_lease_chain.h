/* gpu_lease_chain.h: components of a chain pass each other buffers on the GPU by handle.
 *
 * A buffer is device memory of the chain's pool. Who allocates it or gets it holds it; who puts it
 * gives it away and has a handle, which goes to another component by any pipe; who gets it holds it
 * then. It returns to the pool when nobody holds it and no handle of it is on its way. Addresses
 * stay the same while the buffer is held, also while the job has no lease and the buffer is away
 * from the GPU. docs/chains.md has the whole of it.
 *
 * Any thread may call these functions. One without a current CUDA context at its first alloc or get
 * gets that in which the chain was opened; where there was none either, it is the primary one of
 * the first device. They return 0, or one of enum gpu_lease_chain_status; gpu_lease_chain_error()
 * has the reason as a sentence.
 */
#ifndef GPU_LEASE_CHAIN_H
#define GPU_LEASE_CHAIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPU_LEASE_HANDLE_BYTES 64

enum gpu_lease_chain_status {
	GPU_LEASE_CHAIN_OUTSIDE = 1, /* the process is in no job that shares a GPU */
	GPU_LEASE_CHAIN_FORGED,      /* no such handle was ever made */
	GPU_LEASE_CHAIN_OTHER,       /* the handle is of another chain, or of one that has ended */
	GPU_LEASE_CHAIN_STALE,   /* all takers have it, nobody took it in time, or it was lost */
	GPU_LEASE_CHAIN_DROPPED, /* this process does not hold the buffer */
	GPU_LEASE_CHAIN_FULL,    /* the pool has no room */
	GPU_LEASE_CHAIN_LATE,    /* the time for the call is over */
	GPU_LEASE_CHAIN_ENDED,   /* the chain's keeper has ended */
	GPU_LEASE_CHAIN_FORKED,  /* the chain was opened by the parent of this process */
	GPU_LEASE_CHAIN_LIMIT,   /* too many components, buffers or takers, or too large */
	GPU_LEASE_CHAIN_CUDA,    /* the driver's error */
	GPU_LEASE_CHAIN_SYSTEM,  /* the system's error */
	GPU_LEASE_CHAIN_PART,    /* the driver has no context with a part of the multiprocessors */
	GPU_LEASE_CHAIN_CLOSED,  /* the chain has been closed, perhaps by another thread */
	GPU_LEASE_CHAIN_INVALID  /* an argument says nothing that the call knows */
};

/* When the work on a buffer is over. */
enum gpu_lease_chain_when {
	GPU_LEASE_CHAIN_WAIT = 0,  /* the call waits for the stream */
	GPU_LEASE_CHAIN_NOW = 1,   /* it is over */
	GPU_LEASE_CHAIN_LATER = 2, /* when the stream's work so far is; the call does not wait */
};

struct gpu_lease_chain;

/* A buffer that this process holds. */
struct gpu_lease_buffer {
	uint64_t pointer; /* a CUdeviceptr */
	uint64_t size;    /* bytes that were asked for */
	uint32_t index;   /* in the pool */
	uint32_t zero;
};

/* Joins the chain of this process's job. Who comes first starts its keeper, whose pool has at most
 * pool_bytes (0: a quarter of the device), and in which a handle may wait for keep_s seconds to be
 * taken (0: 60); for all others the two have no meaning. */
int gpu_lease_chain_open(struct gpu_lease_chain **out, uint64_t pool_bytes, uint32_t keep_s);
/* Leaves it: what this process still holds goes back to the pool. No work may use it any more.
 * Calls of other threads that wait for the chain return GPU_LEASE_CHAIN_CLOSED, and are waited for.
 */
void gpu_lease_chain_close(struct gpu_lease_chain *chain);

/* Holds a new buffer, whose bytes are of no defined value. timeout_ms: how long to wait while the
 * pool is full; 0: not at all; below 0: for ever. The keeper's answer, where one is needed, is
 * waited for as long, but with 0 for a minute. */
int gpu_lease_chain_alloc(struct gpu_lease_chain *chain, uint64_t size, int64_t timeout_ms,
                          struct gpu_lease_buffer *out);
/* Gives a held buffer away to `takers` components, each of which gets it once. */
int gpu_lease_chain_put(struct gpu_lease_chain *chain, const struct gpu_lease_buffer *buffer,
                        uint32_t takers, void *stream, enum gpu_lease_chain_when when,
                        uint8_t handle[GPU_LEASE_HANDLE_BYTES]);
/* Holds the buffer of a handle. timeout_ms: how long to wait for work that was put with it,
 * and for the keeper, as in alloc. */
int gpu_lease_chain_get(struct gpu_lease_chain *chain, const uint8_t handle[GPU_LEASE_HANDLE_BYTES],
                        int64_t timeout_ms, struct gpu_lease_buffer *out);
/* Holds the buffer no more. */
int gpu_lease_chain_drop(struct gpu_lease_chain *chain, const struct gpu_lease_buffer *buffer,
                         void *stream, enum gpu_lease_chain_when when);

/* What there is in the pool. */
struct gpu_lease_chain_use {
	uint64_t limit, bytes;     /* of the pool: at most, and now */
	uint32_t active, inactive; /* buffers that are held or on their way, and others */
	uint32_t members, zero;    /* components */
};
int gpu_lease_chain_used(struct gpu_lease_chain *chain, struct gpu_lease_chain_use *out);

/* By which contexts a component keeps to its part of the multiprocessors. */
enum gpu_lease_chain_parts {
	GPU_LEASE_CHAIN_AUTO = 0,  /* green ones where the driver has them, else affinity */
	GPU_LEASE_CHAIN_GREEN = 1, /* of the current context, whose memory and modules are theirs */
	GPU_LEASE_CHAIN_AFFINITY = 2 /* of their own, under MPS only: load modules in each */
};

/* What a component uses of the multiprocessors. */
struct gpu_lease_part {
	uint32_t percent;
	uint32_t multiprocessors; /* as the driver has rounded them */
	void *context;            /* a CUcontext, which is current for the calling thread */
	void *stream;             /* a CUstream of it that waits for no other one */
};

/* The part that the component has from now on, which the daemon changes while it looks for what
 * makes the chain fastest. Call it before each item, and submit that item's work in the context or
 * the stream. Contexts are made once and kept: at most 16; that of 100% is the one that was current
 * at the first call. One that was returned 16 different parts ago is destroyed when its work has
 * ended. One thread calls it. */
int gpu_lease_chain_part(struct gpu_lease_chain *chain, enum gpu_lease_chain_parts how,
                         struct gpu_lease_part *out);

/* Why the calling thread's last call has failed, and what helps. */
const char *gpu_lease_chain_error(void);

#ifdef __cplusplus
}
#endif
#endif
