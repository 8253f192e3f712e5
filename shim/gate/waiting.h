/* waiting.h: threads of the program that wait for something that the client thread brings. */
#ifndef GPU_LEASE_WAITING_H
#define GPU_LEASE_WAITING_H

#include "base/watch.h"

#include <cuda.h>
#include <stdbool.h>

enum wait_reason {
	WAIT_GATE,  /* for the lease, or for the memory that comes with it */
	WAIT_TERMS, /* for what the job may have */
	N_WAIT_REASONS
};

/* Wait until it is over, as `over` says whenever something has changed; or until nothing is to
 * be hoped for. It is called with the lock. */
CUresult wait_until(enum wait_reason reason, bool (*over)(void));
/* The same for who can do without: was it over within so many ms? */
bool wait_for_ms(int ms, bool (*over)(void));

/* The client thread, of which this room knows no more. start() is called with the lock, and
 * says whether the thread is there. */
struct client_thread {
	bool (*start)(void);
	void (*wake)(void);
};
WATCH_LIST(client_threads, const struct client_thread);
CUresult client_start(void);
void client_wake(void); /* there is something for the client thread to do */

/* Of the client thread: */
int threads_waiting(enum wait_reason reason);
void waiting_wake_all(void); /* something has changed: all check again */
void waiting_refuse(void);   /* there will be no lease for this process */
bool waiting_is_refused(void);

#endif
