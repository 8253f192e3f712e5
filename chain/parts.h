/* parts.h: contexts with several parts of the device's multiprocessors, made once and kept. */
#ifndef CHAIN_PARTS_H
#define CHAIN_PARTS_H

#include "driver.h"
#include "gpu_lease_chain.h"

#include <stddef.h>

#define PARTS_KEPT 16

struct part_context {
	unsigned int first, count; /* multiprocessors that were asked for; count 0: none is here */
	unsigned int got;
	uint64_t used;    /* when it was last chosen */
	CUgreenCtx green; /* NULL: a context of its own */
	CUcontext context;
	CUstream stream;
};

/* Of one process. All zero at first. */
struct chain_parts {
	CUdevice device;
	CUcontext home; /* in which the component works with all of them */
	CUstream stream;
	unsigned int all;
	uint64_t changes;
	struct part_context kept[PARTS_KEPT];
};

/* Makes the context with this part current. begins: per mille. Returns 0, or a CUresult with what
 * was done in *what. A thread of the program, with a current context. */
CUresult parts_choose(struct chain_parts *parts, const struct chain_cuda *cuda,
                      enum gpu_lease_chain_parts how, unsigned int percent, unsigned int begins,
                      struct gpu_lease_part *out, const char **what);
/* Destroys them. */
void parts_end(struct chain_parts *parts, const struct chain_cuda *cuda);

#endif
