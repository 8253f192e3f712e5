/* shared.h: swapped memory that other processes of the job open (CUDA IPC).
 *
 * What is shared stays on the device from then on. Its physical memory goes from process
 * to process as descriptors, over a socket whose ends the daemon gave to both.
 */
#ifndef GPU_LEASE_SHARED_H
#define GPU_LEASE_SHARED_H

#include "memory/kind.h"

/* What the 64 bytes say that a process gives to another. Nothing in them is believed: the
 * process of that name looks up what it has. */
struct shared_handle {
	char mark[8];                /* SHARED_MARK; the driver's own handles have another */
	uint8_t name[GL_NAME_BYTES]; /* of the process that has the memory */
	uint64_t block;              /* its number there */
	uint64_t offset, size;       /* of the allocation in the block */
	uint64_t zero[2];
};
_Static_assert(sizeof(struct shared_handle) == sizeof(CUipcMemHandle), "a handle is 64 bytes");

#define SHARED_MARK "GPLSIPC"

/* shared_export.c */
bool shared_can(CUdeviceptr base); /* can the allocation be shared? */
CUresult shared_fix(CUdeviceptr base, struct shared_handle *out); /* fills in all but the name */
/* Of the client thread: somebody of the job asks for a block and an allocation in it. */
void shared_serve(const uint64_t what[2], int end);

/* shared_import.c */
bool shared_is(const struct shared_handle *handle);
bool shared_open_again(const struct shared_handle *handle, CUdeviceptr *out);
CUresult shared_open(const struct shared_handle *handle, int end, CUdeviceptr *out);
/* Closes it, with *result. False: no opened memory begins there. */
bool shared_close(CUdeviceptr pointer, CUresult *result);
bool shared_find(CUdeviceptr pointer, struct memory_place *out);

#endif
