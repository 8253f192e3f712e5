/* contexts.h: the contexts of the process. */
#ifndef GPU_LEASE_CONTEXTS_H
#define GPU_LEASE_CONTEXTS_H

#include "base/watch.h"

#include <cuda.h>
#include <stdbool.h>

void context_add(CUcontext context, CUdevice device);
bool contexts_exist(void);
bool contexts_lost_in_fork(void);     /* the driver refuses every call of this child by itself */
bool context_busy(CUcontext context); /* at the last contexts_poll() */
bool contexts_some_idle(void);
/* Call `work` with a context of the device current, `preferred` if it is still
 * there; no context is destroyed meanwhile. False: there is none. */
bool contexts_with(CUdevice device, CUcontext preferred,
                   void (*work)(CUcontext context, void *argument), void *argument);

/* While the context ends: do it with the context current, whatever captures go on. */
void context_run_in(CUcontext context, void (*work)(CUcontext context));

/* Where the work of a context stood: an event, and whether it has been recorded and not passed. */
struct waypoint {
	CUevent event;
	bool pending;
};
/* Asks `idle` of the contexts and notes which are busy. True: none is. No context is destroyed
 * meanwhile, and each is current for its call. all: ask every one, after a busy one too. */
bool contexts_poll(bool (*idle)(CUcontext context, struct waypoint *waypoint), bool all);

/* Who keeps something of a context. Both are called with the contexts' lock, from a thread of
 * the program: `ends` while it is still there, `gone` when the driver has ended it. Either
 * may be NULL. */
struct context_watch {
	void (*ends)(CUcontext context);
	void (*gone)(CUcontext context);
};
WATCH_LIST(context_watches, const struct context_watch);
#define CONTEXT_WATCH(ends, gone)                                                                  \
	static const struct context_watch context_watch = {ends, gone};                            \
	WATCH(context_watches, &context_watch)

/* Between begin and end the driver destroys the context; nobody uses it then. */
struct context_entry {
	CUcontext context; /* NULL: it was not known */
	CUdevice device;
	struct waypoint waypoint;
};
struct context_entry context_remove_begin(CUcontext context);
void context_remove_end(CUcontext context, const struct context_entry *entry, bool gone);

#endif
