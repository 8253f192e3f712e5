/* claims.h: the host memory that must exist for copies of this process's device memory. It is
 * claimed from the daemon when device memory is allocated. */
#ifndef GPU_LEASE_CLAIMS_H
#define GPU_LEASE_CLAIMS_H

#include "base/wire.h"

#include <cuda.h>
#include <stdbool.h>

/* -- threads that allocate or free device memory; they hold no lock ------------------- */

/* The process has counted what it is about to allocate in memory_used(); `limit` is what its job
 * may have on the device, whose UUID is known. May wait for the daemon. CUDA_ERROR_OUT_OF_MEMORY:
 * the node has too little host memory for what might then have to be evicted. */
CUresult claim_cover(CUdevice device, uint64_t limit);
/* The process has freed memory, which memory_used() no longer has. */
void claim_freed(CUdevice device);

/* -- the client thread ----------------------------------------------------------------- */

/* Says whether the connected daemon understands claims. */
void claims_offered(bool offered);
/* The connection has ended. */
void claims_forget_daemon(void);
/* Stores the next message to the daemon in *next. Returns false if there is none. */
bool claims_next_message(struct gl_claim *next);
/* The daemon has answered a claim. */
void claims_answer(const struct gl_claimed *answer);

#endif
