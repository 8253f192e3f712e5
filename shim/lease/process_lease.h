/* process_lease.h: the one lease of this process. */
#ifndef GPU_LEASE_PROCESS_LEASE_H
#define GPU_LEASE_PROCESS_LEASE_H

#include "lease/lease.h"

extern struct lease process_lease; /* only the client thread uses it */

#endif
