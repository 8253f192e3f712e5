/* vmm_copy.h: copies the bytes of memory in several pieces, at addresses that are reserved for it.
 *
 * The caller holds vmm_lock; no work runs that uses the memory. A context of its device is current,
 * and the copies are made in the stream, whose end is waited for.
 */
#ifndef GPU_LEASE_VMM_COPY_H
#define GPU_LEASE_VMM_COPY_H

#include "memory/vmm/vmm.h"

/* Copies the bytes to the object, which is as large. */
CUresult vmm_copy_to_object(const struct physical *physical, CUmemGenericAllocationHandle whole,
                            CUstream stream);
/* Copies the bytes to the host (out) or from it. */
CUresult vmm_copy_by_host(const struct physical *physical, char *host, bool out, CUstream stream);

#endif
