/* shared_parts.h: what goes between two processes that share memory.
 *
 * The one that has a block sends it as parts: a message with the descriptors of some of
 * its segments. Nothing in a part is believed before part_follows() has agreed.
 */
#ifndef GPU_LEASE_SHARED_PARTS_H
#define GPU_LEASE_SHARED_PARTS_H

#include "base/wire.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define SHARED_PART_MARK "GPLSPRT"
#define SHARED_AT_ONCE 64

struct shared_part {
	char mark[8];      /* SHARED_PART_MARK */
	uint32_t status;   /* CUresult; the rest holds with CUDA_SUCCESS alone */
	uint32_t first, n; /* of the segments in order: which come with this part */
	uint32_t total;    /* of the block */
	uint64_t size;     /* of the block; all segments but the last have `piece` bytes */
	uint64_t piece;
	uint64_t allocation;         /* bytes of the one that was asked for */
	uint8_t uuid[GL_UUID_BYTES]; /* of the device */
};

/* files: a descriptor for each segment of the part. */
bool part_send(int end, const struct shared_part *part, const int *files);
/* CUDA_ERROR_INVALID_VALUE: the other one has ended or refuses; CUDA_ERROR_MAP_FAILED: it has been
 * silent for too long, which has been said. *n descriptors have come in any case. */
CUresult part_receive(int end, struct shared_part *part, int files[SHARED_AT_ONCE], uint32_t *n);
/* Is it a part that may come after `before`? That one is all zero at the beginning. */
bool part_follows(const struct shared_part *part, const struct shared_part *before);

#endif
