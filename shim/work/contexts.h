/* contexts.h: the process's contexts.
 *
 * Any thread may call these functions, unless they say otherwise.
 */
#ifndef GPU_LEASE_CONTEXTS_H
#define GPU_LEASE_CONTEXTS_H

#include "base/watch.h"

#include <cuda.h>
#include <stdbool.h>

/* The program has made or retained this context. Nothing happens if it is in the list already. */
void context_add(CUcontext context, CUdevice device);
bool contexts_exist(void);
/* Is this a forked child whose parent had contexts? Then the driver itself refuses its calls. */
bool contexts_lost_in_fork(void);
/* How many contexts of the device were busy at the last contexts_poll()? */
unsigned int contexts_busy_on(CUdevice device);
/* Has the process more than one? */
bool contexts_several(void);
/* Was the context busy at the last contexts_poll()? */
bool context_busy(CUcontext context);
/* Did the last contexts_poll() find a context that was not busy? Also true while a capture exists,
 * since then nobody knows. */
bool contexts_some_idle(void);
/* Calls `work` while a context of the device is current: `preferred`, if that still exists. No
 * context is destroyed during the call, since LOCK_CONTEXTS is held. Returns false if the device
 * has no context. */
bool contexts_with(CUdevice device, CUcontext preferred,
                   void (*work)(CUcontext context, void *argument), void *argument);

/* Calls `work` while the context is current, with the relaxed capture mode. For watches of a
 * context that ends; the caller holds LOCK_CONTEXTS. */
void context_run_in(CUcontext context, void (*work)(CUcontext context));

/* An event behind the work that a context had at some time. LOCK_CONTEXTS protects it. */
struct waypoint {
	CUevent event;
	bool pending;         /* it has been recorded, and has not been seen to complete */
	unsigned long behind; /* so many submissions of the process; UNSETTLED: not known */
	/* Numbers of polls: of the present one, of the one at which it was recorded last, and of
	 * the last one whose record has been seen to complete. */
	unsigned long now, recorded, passed;
};
#define UNSETTLED (~0UL)

/* Calls `idle` for the contexts, each of them current during its call, and remembers which are
 * busy. Returns true if none is. With `all` every context is asked; otherwise it stops at the first
 * busy one. submitted: how many submissions have reached the driver, or UNSETTLED; `idle` is given
 * it too. LOCK_CONTEXTS is held, so no context is destroyed meanwhile. */
bool contexts_poll(bool (*idle)(CUcontext context, struct waypoint *waypoint,
                                unsigned long submitted),
                   unsigned long submitted, bool all);

/* Has all work finished that the contexts had at the poll `*mark`? Then it is the last poll's
 * number from now on. */
bool contexts_passed(unsigned long *mark);

/* For a file that keeps something of a context. A thread of the program calls both functions with
 * LOCK_CONTEXTS held: `ends` while the context still exists, `gone` when the driver has destroyed
 * it. Either may be NULL. */
struct context_watch {
	void (*ends)(CUcontext context);
	void (*gone)(CUcontext context);
};
WATCH_LIST(context_watches, const struct context_watch);
#define CONTEXT_WATCH(ends, gone)                                                                  \
	static const struct context_watch context_watch = {ends, gone};                            \
	WATCH(context_watches, &context_watch)

/* The caller destroys the context between these two calls. LOCK_CONTEXTS is held from the first to
 * the second, so no other thread uses the context. `gone`: the driver has destroyed it; otherwise
 * `entry`, as the first call has returned it, goes back into the list. */
struct context_entry {
	CUcontext context; /* NULL if the context was not in the list */
	CUdevice device;
	struct waypoint waypoint;
};
struct context_entry context_remove_begin(CUcontext context);
void context_remove_end(CUcontext context, const struct context_entry *entry, bool gone);

#endif
