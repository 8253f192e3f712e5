/* node_chunks.h: chunks of host memory that is the node's, and not the job's own. */
#ifndef GPU_LEASE_NODE_CHUNKS_H
#define GPU_LEASE_NODE_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool node_chunk_ask(size_t size);  /* true: one comes, or the answer that none does */
uint64_t node_chunks_coming(void); /* bytes; caller holds chunks_lock */

#endif
