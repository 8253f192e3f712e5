/* kinds.h: all kinds of memory together.
 *
 * Threads of the program call the first four functions, the client thread the last two; none of
 * them holds a lock.
 */
#ifndef GPU_LEASE_KINDS_H
#define GPU_LEASE_KINDS_H

#include "memory/kind.h"

extern const struct memory_kind *const memory_kinds[N_MEMORY_KINDS];

/* The kind of memory that allocations on the device get. */
const struct memory_kind *memory_kind_on(CUdevice device);
/* Allocates memory of the kind. pool: the pool that it was asked from, or NULL. Errors are those of
 * limit_take() and of the kind. */
CUresult memory_allocate(const struct memory_kind *kind, CUdeviceptr *out, size_t size,
                         CUdevice device, CUmemoryPool pool);
/* The program's own call to the driver, before which limit_take() was called, has returned
 * `result`. Adds the allocation to ranges.c, or gives its bytes back to the limit after an error.
 * Returns `result`. */
CUresult memory_note(CUresult result, CUdeviceptr base, size_t size, CUdevice device,
                     const struct memory_kind *kind);
/* Finds the allocation that the address lies in. Returns false if only the driver may know it. */
bool memory_locate(CUdeviceptr pointer, struct memory_place *out);
/* How much memory the process has on each device. Returns the number of entries. */
uint32_t memory_report(struct gl_device out[GL_MAX_DEVICES]);
/* Why memory stays on the devices, and how much was evicted without a copy, as messages to the
 * daemon. Returns their number. */
uint32_t memory_details(struct gl_details out[GL_MAX_DEVICES]);

#endif
