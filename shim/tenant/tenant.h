/* tenant.h: what the daemon has said of this process' job, as plain data. */
#ifndef GPU_LEASE_TENANT_H
#define GPU_LEASE_TENANT_H

#include "base/wire.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define NO_LIMIT UINT64_MAX

CUresult tenant_wait(void);  /* until it is known; the rest says nothing before */
bool tenant_wait_ms(int ms); /* for callers that can do without; true: it is known */
bool tenant_oversubscribes(void);
bool tenant_swaps(void);  /* what is allocated shall be swapped, not managed */
bool tenant_cleans(void); /* of what is swapped, that need not be copied which is as its copy is */
uint64_t tenant_limit(const uint8_t uuid[16]);  /* bytes it may have; NO_LIMIT: not its device */
uint64_t tenant_others(const uint8_t uuid[16]); /* bytes its other processes have */

/* Of the client thread: */
void tenant_welcome(const struct gl_welcome *message);
void tenant_has_others(const struct gl_memory *message);

#endif
