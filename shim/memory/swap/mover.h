/* mover.h: the mover of swapped memory (memory/mover.h says what a mover does). */
#ifndef GPU_LEASE_SWAP_MOVER_H
#define GPU_LEASE_SWAP_MOVER_H

#include "memory/mover.h"

extern const struct mover swap_mover;

#endif
