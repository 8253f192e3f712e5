/* mover.h: memory that is evicted from the devices and restored to them, as the lease asks for it.
 *
 * The client thread alone calls these functions, without any lock. None of them waits: what takes
 * time is done in steps, and the client thread hears the daemon between two steps.
 */
#ifndef GPU_LEASE_MOVER_H
#define GPU_LEASE_MOVER_H

#include "base/wire.h"

#include <stdbool.h>
#include <stdint.h>

/* cffi:begin */
/* How many bytes were copied to the devices, and in how many ns. From it the daemon estimates the
 * speed of the link. bytes 0: nothing was copied. */
struct link_sample {
	uint64_t bytes, ns;
};

struct mover {
	/* The lease is granted: restores evicted memory. Of managed memory, which other jobs may
	 * have displaced, it restores as much as the grant says. NULL: the lease is for one call
	 * only, so only memory is restored that the call needs. */
	void (*restore)(const struct gl_grant *grant);
	/* Is the restore over, so that the gate may open? */
	bool (*restore_finished)(void);
	/* Is all of it there that work needs which has been stopped in mid-kernel? The driver
	 * itself brings the rest when work uses it. NULL, of one kind: it needs none. */
	bool (*needed_is_here)(void);
	/* Restores so much displaced memory while the program works. */
	void (*refill)(const struct gl_grant *grant);
	/* The gate is shut and all work has finished: from now on memory may be evicted, once no
	 * thread is inside the gate. Returns false if this memory is never evicted. */
	bool (*allow_eviction)(void);
	/* Evicts so many bytes. */
	void (*evict)(const struct gl_memory *amounts);
	/* Evicts all memory that can be evicted, even if no job needs the space. */
	void (*evict_all)(void);
	/* Restores so many bytes before the lease is granted. */
	void (*preload)(const struct gl_memory *amounts);
	/* So many bytes may have to be evicted soon: gets host memory ready for them. */
	void (*expect)(const struct gl_memory *amounts);
	/* Keeps host memory ready for so many bytes, and for no more. */
	void (*keep_host_memory)(const struct gl_memory *amounts);
	/* The job moves, or is saved, and will have to give up all of its memory: what slows down
	 * the driver's checkpoint is given up as soon as it is not needed. false: it does not any
	 * more. */
	void (*rest)(bool rest);
	/* Takes one step of getting it ready. Returns how many ns may pass until the next step;
	 * below 0: no step is needed. */
	int64_t (*prepare)(void);
	/* Takes one step of evicting or restoring. Returns true if more steps are needed. */
	bool (*step)(void);
	/* How many ns may pass until the next step. */
	int64_t (*pause_ns)(void);
	/* Is there host memory that is not needed any more? As far as the last step() has found. */
	bool (*has_excess)(void);
	/* Gives up some of it, for so many ns or a little longer. The driver waits until all work
	 * has finished that the process has submitted, and so does this. */
	void (*give_up_excess)(int64_t ns);
	/* Begins nothing more. Copies that have begun finish. */
	void (*stop)(void);
	/* What the last restore or refill has copied. Returns it once; then bytes is 0. */
	struct link_sample (*link_sample)(void);
};
/* cffi:end */

/* The movers of all kinds of memory together (mover.c). */
extern const struct mover memory_mover;

#endif
