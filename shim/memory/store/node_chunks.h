/* node_chunks.h: chunks of host memory that the daemon has made and lends to the process. */
#ifndef GPU_LEASE_NODE_CHUNKS_H
#define GPU_LEASE_NODE_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Asks the daemon for a chunk of `size` bytes, a multiple of CHUNK_UNIT. Returns false if this
 * daemon has none, or has refused one a moment ago. Any thread may call it, without
 * chunks_lock. */
bool node_chunk_request(size_t size);
/* Bytes that are requested and not answered yet. The caller holds chunks_lock. */
uint64_t node_chunks_requested(void);

#endif
