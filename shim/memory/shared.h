/* shared.h: swapped memory that other processes of the job open (CUDA IPC).
 *
 * Shared memory stays on the device from then on, unless it is lent by the keeper of a chain. Its
 * physical memory is passed from process to process as file descriptors, over a pair of sockets of
 * which the daemon gives one end to each.
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
/* The same of an allocation that goes on moving: the job's other processes have its block mapped
 * only while they have their lease (shared_import.c). It has a block of its own: at least 1 MiB. */
CUresult shared_lend(CUdeviceptr base, struct shared_handle *out);
/* Does the block with that number stay on the device? */
bool shared_stays(uint64_t number);
/* Sends a block, and the size of an allocation in it, to another process. what: the block's number
 * and the allocation's offset. A lent block has to be resident: the caller is inside the gate, and
 * with `keep` the block stays on the device from then on. Closes the socket `end`. */
void shared_serve(const uint64_t what[2], int end, bool keep);

/* -- shared_import.c: the process that opens it; threads of the program, without locks -- */

bool shared_is(const struct shared_handle *handle);
/* Opens an allocation whose block this context has mapped already. Returns false if it has not. */
bool shared_open_again(const struct shared_handle *handle, CUdeviceptr *out);
/* The number of the present turn, which ends when lent memory is let go. */
unsigned long shared_turn(void);
/* Opens an allocation whose block the process at the other end of the socket sends, which was asked
 * in this turn. Errors: those of import_map(), CUDA_ERROR_INVALID_VALUE, and CUDA_ERROR_NOT_READY
 * if the block is lent and the turn is over, or the process has no lease: open it again with one.
 * *lent: it has to be mapped again in each turn. */
CUresult shared_open(const struct shared_handle *handle, int end, unsigned long turn, bool *lent,
                     CUdeviceptr *out);
/* Closes an opened allocation once, with this result. Returns false if none begins there. */
bool shared_close(CUdeviceptr pointer, CUresult *result);
/* Finds the opened allocation that the address lies in. */
bool shared_find(CUdeviceptr pointer, struct memory_place *out);

/* -- lent memory, which is mapped only while the process has its lease ------------------------ */

/* Of the client thread. The lease is granted: lent memory is to be mapped again. */
void shared_restore(void);
/* Of the client thread. Is all of it mapped, but for what cannot be? */
bool shared_restored(void);
/* Of the client thread: the gate is shut, nobody is inside and no work runs. Unmaps lent memory, so
 * that the process which has it can evict it. */
void shared_let_go(void);
/* Of a thread of ours that maps it: waits until a block is to be mapped again, and returns it with
 * a handle of it. shared_map_again() has to follow, with a socket to the process which has it;
 * below 0: there is no such process. */
struct import;
struct import *shared_next(struct shared_handle *handle, unsigned long *turn);
void shared_map_again(struct import *import, unsigned long turn, int end);

#endif
