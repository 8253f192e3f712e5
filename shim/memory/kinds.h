/* kinds.h: all kinds of memory together. */
#ifndef GPU_LEASE_KINDS_H
#define GPU_LEASE_KINDS_H

#include "memory/kind.h"

extern const struct memory_kind *const memory_kinds[N_MEMORY_KINDS];

/* What an allocation on the device becomes. */
const struct memory_kind *memory_kind_on(CUdevice device);
CUresult memory_allocate(const struct memory_kind *kind, CUdeviceptr *out, size_t size,
                         CUdevice device, CUmemoryPool pool);
/* What the driver's own call gave, or did not give: it is known, or its bytes of the limit
 * are given back. */
CUresult memory_note(CUresult result, CUdeviceptr base, size_t size, CUdevice device,
                     const struct memory_kind *kind);
/* Where in an allocation the address lies; false: the driver can tell. */
bool memory_locate(CUdeviceptr pointer, struct memory_place *out);
/* What there is on each device, for the daemon; how many entries. */
uint32_t memory_report(struct gl_device out[GL_MAX_DEVICES]);

#endif
