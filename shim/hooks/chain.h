/* chain.h: what the library of chains (chain/) asks of the interposer, which it finds by dlsym().
 */
#ifndef GPU_LEASE_HOOKS_CHAIN_H
#define GPU_LEASE_HOOKS_CHAIN_H

/* 0: this process is the keeper of its chain from now on (keeper_begin()). */
int gpu_lease_chain_keep(int door);
/* 0: *end is a connection to the keeper of the chain; else a CUresult (keeper_meet()). */
int gpu_lease_chain_meet(int *end);
/* What part of the multiprocessors this process is to use from now on (part_ask()), per cent; where
 * it begins, per mille of them. */
void gpu_lease_chain_ask_part(unsigned int *percent, unsigned int *begins);

#endif
