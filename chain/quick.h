/* quick.h: the calls of gpu_lease_chain.h as far as they take no time, for who must not wait in
 * them (python.c, which has the interpreter's lock).
 *
 * They return GPU_LEASE_CHAIN_LONG, and have done nothing, if the call has to wait, to ask the
 * keeper or to call the driver: then it is to be made by its own name. Otherwise they are that
 * call.
 */
#ifndef CHAIN_QUICK_H
#define CHAIN_QUICK_H

#include "gpu_lease_chain.h"

#define GPU_LEASE_CHAIN_LONG (-1)

int gpu_lease_chain_quick_alloc(struct gpu_lease_chain *chain, uint64_t size,
                                struct gpu_lease_buffer *out);
int gpu_lease_chain_quick_put(struct gpu_lease_chain *chain, const struct gpu_lease_buffer *buffer,
                              uint32_t takers, enum gpu_lease_chain_when when,
                              uint8_t handle[GPU_LEASE_HANDLE_BYTES]);
int gpu_lease_chain_quick_get(struct gpu_lease_chain *chain,
                              const uint8_t handle[GPU_LEASE_HANDLE_BYTES],
                              struct gpu_lease_buffer *out);
int gpu_lease_chain_quick_drop(struct gpu_lease_chain *chain, const struct gpu_lease_buffer *buffer,
                               enum gpu_lease_chain_when when);

#endif
