/* touching.h: the pages of new chunks are made, by threads of our own. */
#ifndef GPU_LEASE_TOUCHING_H
#define GPU_LEASE_TOUCHING_H

#include "memory/swap/chunks.h"

void chunk_touch(struct chunk *chunk); /* as much as no other thread does */
/* Whether somebody will wait for what is made; or it is made beside the program's work. */
void chunks_hurry(bool hurry);
bool chunks_hurried(void);
void chunks_touch(void);  /* threads touch all chunks: several in a hurry, else one */
bool chunks_helped(void); /* some of these threads run; no chunk may end meanwhile */

#endif
