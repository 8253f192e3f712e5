/* printer.h: fingerprints of device memory, computed by the device itself.
 *
 * A printer belongs to one context. Before its first fingerprint counts it has to compute a
 * known one. What it computes lies in host memory that the kernel writes, so it takes no memory
 * of the device, but for a moment at the beginning.
 */
#ifndef GPU_LEASE_PRINTER_H
#define GPU_LEASE_PRINTER_H

#include "base/wire.h"
#include "memory/swap/fingerprint.h"

#include <cuda.h>

#define PRINTER_VALUES 16384 /* stretches of a batch, which is the caller's to heed: 4 GiB */

enum printer_state {
	PRINTER_NEW,
	PRINTER_READY,
	PRINTER_WRONG /* it does not load, or what it computes is wrong */
};

struct printer {
	enum printer_state state;
	enum gl_clean fault; /* where it is wrong: why */
	CUmodule module;
	CUfunction function;
	CUstream stream;
	CUevent event;
	struct fingerprint *values; /* of stretches */
	CUdeviceptr device_values;
	size_t n; /* values that are in use */
};

/* All with the context current. */
/* True: it is ready. It may not be yet, where the device has no room for a moment. */
bool printer_prepare(struct printer *printer);
/* Begins the fingerprint of whole tiles; *first: what printer_read() needs. */
CUresult printer_print(struct printer *printer, CUdeviceptr base, size_t size, size_t *first);
CUresult printer_end_batch(struct printer *printer);   /* after the last of some of these */
CUresult printer_query(const struct printer *printer); /* have they all ended? */
struct fingerprint printer_read(const struct printer *printer, size_t first, size_t size);
void printer_begin_batch(struct printer *printer); /* those before are not needed any more */
void printer_end(struct printer *printer);         /* the context is about to end */

#endif
