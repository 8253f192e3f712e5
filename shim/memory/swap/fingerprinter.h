/* fingerprinter.h: fingerprints of device memory, computed by the device itself.
 *
 * A fingerprinter belongs to one context. Before its results are used it has to compute a known
 * fingerprint correctly. The kernel writes its results to host memory, so a fingerprinter needs
 * memory of the device only while it is being prepared.
 *
 * The context is current in all calls. The client thread calls these functions; another thread may
 * when the context ends, with LOCK_CONTEXTS held.
 */
#ifndef GPU_LEASE_FINGERPRINTER_H
#define GPU_LEASE_FINGERPRINTER_H

#include "base/wire.h"
#include "memory/swap/fingerprint.h"

#include <cuda.h>

/* The most stretches of one batch, which are 4 GiB. The caller must not submit more. */
#define FINGERPRINTER_VALUES 16384

enum fingerprinter_state {
	FINGERPRINTER_NEW,
	FINGERPRINTER_READY,
	FINGERPRINTER_WRONG /* the driver cannot load it, or it computes wrong values */
};

struct fingerprinter {
	enum fingerprinter_state state;
	enum gl_clean fault; /* if the state is WRONG: why */
	CUmodule module;
	CUfunction function;
	CUstream stream;
	CUevent event;
	struct fingerprint *values; /* of stretches, in host memory */
	CUdeviceptr device_values;  /* their address on the device */
	size_t n;                   /* values of the current batch */
};

/* Loads the kernel and tries it, unless that is done. Returns true if it is ready. It may become
 * ready later if the device has no free memory now. */
bool fingerprinter_prepare(struct fingerprinter *fingerprinter);
/* Begins a batch. Results of the batch before are lost. */
void fingerprinter_begin_batch(struct fingerprinter *fingerprinter);
/* Submits the fingerprint of `size` bytes, a multiple of FINGERPRINT_TILE. *first is an argument
 * of fingerprinter_read(). */
CUresult fingerprinter_submit(struct fingerprinter *fingerprinter, CUdeviceptr base, size_t size,
                              size_t *first);
/* Call it after the last one of the batch. */
CUresult fingerprinter_end_batch(struct fingerprinter *fingerprinter);
/* Has the batch finished? CUDA_SUCCESS, CUDA_ERROR_NOT_READY or another error. */
CUresult fingerprinter_query(const struct fingerprinter *fingerprinter);
struct fingerprint fingerprinter_read(const struct fingerprinter *fingerprinter, size_t first,
                                      size_t size);
/* The context is about to end. */
void fingerprinter_end(struct fingerprinter *fingerprinter);

#endif
