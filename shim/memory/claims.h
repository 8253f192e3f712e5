/* claims.h: how much of the node's host memory for copies must be there for this process' device
 * memory: taken when that is allocated (claims.c). */
#ifndef GPU_LEASE_CLAIMS_H
#define GPU_LEASE_CLAIMS_H

#include "base/wire.h"

#include <cuda.h>
#include <stdbool.h>

/* The process is about to have so much on the device in all. CUDA_ERROR_OUT_OF_MEMORY: the node
 * could not hold what might have to leave. It may wait for the daemon. limit: what the job may have
 * there. */
CUresult claim_cover(CUdevice device, const uint8_t uuid[16], uint64_t bytes, uint64_t limit);
void claim_freed(CUdevice device, uint64_t bytes); /* it has so much left */

/* Of the client thread: */
void claims_offered(bool offered); /* whether this daemon takes claims */
bool claims_next_message(struct gl_claim *next);
void claims_answer(const struct gl_claimed *answer);

#endif
