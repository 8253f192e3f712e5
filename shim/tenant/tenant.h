/* tenant.h: what the daemon has told about this process's job, as plain data.
 *
 * The terms of a job are what the daemon's WELCOME says: its limits and its kind of memory. Threads
 * of the program ask for them after tenant_wait().
 */
#ifndef GPU_LEASE_TENANT_H
#define GPU_LEASE_TENANT_H

#include "base/wire.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define NO_LIMIT UINT64_MAX

/* Waits until the terms are known; the caller holds no lock. Errors are those of wait_until(). */
CUresult tenant_wait(void);
/* The same for `ms` milliseconds at most. Returns whether the terms are known. */
bool tenant_wait_ms(int ms);
/* May the job allocate more than the device holds? */
bool tenant_oversubscribes(void);
/* Is the job's memory swapped, not managed? */
bool tenant_swaps(void);
/* Are segments that still equal their copy evicted without being copied again? */
bool tenant_cleans(void);
/* The bytes that the job may have on a device; NO_LIMIT if the device is not one of the job's. */
uint64_t tenant_limit(const uint8_t uuid[16]);
/* The bytes that the other processes of the job have on a device. */
uint64_t tenant_others(const uint8_t uuid[16]);

/* The client thread has received WELCOME or OTHERS. */
void tenant_welcome(const struct gl_welcome *message);
void tenant_has_others(const struct gl_memory *message);

#endif
