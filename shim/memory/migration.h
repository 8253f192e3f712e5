/* migration.h: managed memory is prefetched in bulk, to its device or to the host.
 *
 * The client thread calls these functions, unless it says otherwise. None of them waits.
 */
#ifndef GPU_LEASE_MIGRATION_H
#define GPU_LEASE_MIGRATION_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* Begins to migrate the device's managed memory to it, newest allocation first and as much as fits;
 * with `out` all of it to the host. Another migration of the device ends. */
void migration_begin(CUdevice device, bool out);
/* Takes a step if there is a migration. Returns true if it has submitted work. */
bool migration_step(CUdevice device);
/* Is there a migration of any device? */
bool migrations_go_on(void);
/* They begin nothing more; with `out_only`, those to the host. */
void migrations_stop(bool out_only);
/* Bytes that were prefetched to devices since this was called before. */
uint64_t migrations_restored(void);
/* The context is about to end. Called by its thread, with LOCK_CONTEXTS held. */
void migrations_context_ends(CUcontext context);

#endif
