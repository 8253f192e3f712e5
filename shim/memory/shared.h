/* shared.h: swapped memory that other processes of the job open (CUDA IPC).
 *
 * Shared memory stays on the device from then on. Its physical memory is passed from process to
 * process as file descriptors, over a pair of sockets of which the daemon gives one end to each.
 */
#ifndef GPU_LEASE_SHARED_H
#define GPU_LEASE_SHARED_H

#include "memory/kind.h"

/* The 64 bytes of a handle that one process gives to another. Nothing in them is trusted: the
 * process with that name checks what it has. */
struct shared_handle {
	char mark[8];                /* SHARED_MARK; the driver's own handles begin otherwise */
	uint8_t name[GL_NAME_BYTES]; /* of the process that has the memory */
	uint64_t block;              /* the number of the block in that process */
	uint64_t offset, size;       /* bytes: where the allocation lies in the block */
	uint64_t zero[2];
};
_Static_assert(sizeof(struct shared_handle) == sizeof(CUipcMemHandle), "a handle is 64 bytes");

#define SHARED_MARK "GPLSIPC"

/* -- shared_export.c: the process that has the memory --------------------------------- */

/* Can the allocation be shared? */
bool shared_can(CUdeviceptr base);
/* Makes the allocation's block stay on the device, and fills in all of the handle but the name.
 * Waits until the block is restored. CUDA_ERROR_INVALID_VALUE: there is no such allocation;
 * CUDA_ERROR_NOT_READY: it was not restored within EVICTION_WAIT_NS. */
CUresult shared_fix(CUdeviceptr base, struct shared_handle *out);
/* Of the client thread: sends a block, and the size of an allocation in it, to another process of
 * the job. what: the block's number and the allocation's offset. Closes the socket `end`. */
void shared_serve(const uint64_t what[2], int end);

/* -- shared_import.c: the process that opens it; threads of the program, without locks -- */

bool shared_is(const struct shared_handle *handle);
/* Opens an allocation whose block this context has mapped already. Returns false if it has not. */
bool shared_open_again(const struct shared_handle *handle, CUdeviceptr *out);
/* Opens an allocation whose block the process at the other end of the socket sends. Errors:
 * those of import_map() and CUDA_ERROR_INVALID_VALUE. */
CUresult shared_open(const struct shared_handle *handle, int end, CUdeviceptr *out);
/* Closes an opened allocation once, with this result. Returns false if none begins there. */
bool shared_close(CUdeviceptr pointer, CUresult *result);
/* Finds the opened allocation that the address lies in. */
bool shared_find(CUdeviceptr pointer, struct memory_place *out);

#endif
