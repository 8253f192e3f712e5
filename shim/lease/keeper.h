/* keeper.h: the process that keeps the memory of its chain, if this is it.
 *
 * Its memory is lent (memory/shared.h): it moves as other swapped memory does, and other processes
 * of the job map it only in their turns. Whoever of the chain wants to speak with the program is
 * introduced to it by the daemon, as processes are that share memory.
 */
#ifndef GPU_LEASE_KEEPER_H
#define GPU_LEASE_KEEPER_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* A thread of the program, before the process's first call of the driver. Whoever asks for the
 * keeper is introduced over `door`, a socket: each message on it passes one end of a connection.
 * Returns false if the system gives no thread. */
bool keeper_begin(int door);
/* Is this process a keeper? Any thread may ask. */
bool keeper_is(void);
/* A thread of the program: gets a connection to the keeper of the chain. CUDA_ERROR_INVALID_VALUE:
 * there is none. Waits for the daemon. */
CUresult keeper_meet(int *end);

/* The client thread: a process of the chain asks for the keeper or for memory of it, which stays on
 * the device from then on if `stays`. Takes over `end`. */
void keeper_take(const uint64_t what[2], int end, bool stays);

#endif
