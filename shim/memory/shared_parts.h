/* shared_parts.h: the messages between two processes that share memory.
 *
 * The process that has a block sends it as parts: each is a message with the descriptors of some of
 * its segments. The receiver trusts nothing in a part before part_follows() has returned true.
 */
#ifndef GPU_LEASE_SHARED_PARTS_H
#define GPU_LEASE_SHARED_PARTS_H

#include "base/passing.h"
#include "base/wire.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define SHARED_PART_MARK "GPLSPRT"
#define SHARED_AT_ONCE PASS_MOST /* the most segments of one part */

struct shared_part {
	char mark[8];        /* SHARED_PART_MARK */
	uint32_t status;     /* a CUresult; unless it is CUDA_SUCCESS the rest means nothing */
	uint32_t first, n;   /* the segments of this part: how many, and the number of the first */
	uint32_t total;      /* segments of the block */
	uint64_t size;       /* bytes of the block */
	uint64_t piece;      /* bytes of each segment but the last */
	uint64_t allocation; /* bytes of the allocation that was asked for */
	uint64_t lent; /* 1: it moves, so it may be mapped only while this process has its lease */
	uint8_t uuid[GL_UUID_BYTES]; /* of the device */
};

/* Sends a part with a descriptor for each of its segments. Returns false if that fails. */
bool part_send(int end, const struct shared_part *part, const int *files);
/* Waits for a part. *n descriptors were received, even after an error; the caller closes them.
 * CUDA_ERROR_INVALID_VALUE: the other process has ended or refuses; CUDA_ERROR_MAP_FAILED: it has
 * not answered for a minute, and the user has been told. again: the part is of memory that this
 * process had mapped before, and would lose: its keeper may be of a job that is suspended, so it is
 * waited for as long as it lives. */
CUresult part_receive(int end, bool again, struct shared_part *part, int files[SHARED_AT_ONCE],
                      size_t *n);
/* Is `part` sound, and may it follow `before`, which is all zero for the first part? */
bool part_follows(const struct shared_part *part, const struct shared_part *before);

#endif
