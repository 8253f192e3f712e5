/* kinds.h: all kinds of memory together. */
#ifndef GPU_LEASE_KINDS_H
#define GPU_LEASE_KINDS_H

#include "memory/kind.h"

extern const struct memory_kind *const memory_kinds[N_MEMORY_KINDS];

/* The kind that allocations on the device get. */
const struct memory_kind *memory_kind_on(CUdevice device);
CUresult memory_allocate(const struct memory_kind *kind, CUdeviceptr *out, size_t size,
                         CUdevice device, CUmemoryPool pool);
/* After an allocation by the driver's own call: enters the range, or gives its bytes back to the
 * limit where the call has failed. Returns `result`. */
CUresult memory_note(CUresult result, CUdeviceptr base, size_t size, CUdevice device,
                     const struct memory_kind *kind);
/* Which allocation does the address lie in? False: ask the driver. */
bool memory_locate(CUdeviceptr pointer, struct memory_place *out);
/* What there is on each device, for the daemon. Returns the number of entries. */
uint32_t memory_report(struct gl_device out[GL_MAX_DEVICES]);
/* Why it stays, and what has left, as whole messages. Returns their number. */
uint32_t memory_details(struct gl_details out[GL_MAX_DEVICES]);

#endif
