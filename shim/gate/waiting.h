/* waiting.h: threads of the program that wait for the client thread. */
#ifndef GPU_LEASE_WAITING_H
#define GPU_LEASE_WAITING_H

#include "base/watch.h"

#include <cuda.h>
#include <stdbool.h>

enum wait_reason {
	WAIT_GATE,    /* for the lease, or for memory that is restored with it */
	WAIT_TERMS,   /* for the daemon's WELCOME, which says what the job may have */
	WAIT_BRIEFLY, /* for the same, but goes on without it: wait_for_ms() */
	N_WAIT_REASONS
};

/* A thread of the program that holds no lock: starts the client thread if need be, and waits until
 * `fulfilled` returns true. `fulfilled` is called with LOCK_WAITING held, at first and after each
 * waiting_wake_all(). Errors: CUDA_ERROR_OPERATING_SYSTEM if there is no client thread,
 * CUDA_ERROR_NOT_PERMITTED after waiting_refuse(), CUDA_ERROR_DEINITIALIZED while the process
 * exits. */
CUresult wait_until(enum wait_reason reason, bool (*fulfilled)(void));
/* The same for `ms` milliseconds at most. Returns what `fulfilled` said last. */
bool wait_for_ms(int ms, bool (*fulfilled)(void));

/* The client thread, as far as this room knows it. start() is called with LOCK_WAITING held, and
 * returns whether the thread runs. wake() may be called by any thread, in signal handlers too. */
struct client_thread {
	bool (*start)(void);
	void (*wake)(void);
};
WATCH_LIST(client_threads, const struct client_thread);
/* Starts the client thread unless it runs. CUDA_ERROR_OPERATING_SYSTEM if it cannot be started. */
CUresult client_start(void);
/* There is something for the client thread to do. */
void client_wake(void);

/* The client thread: */
/* How many threads wait in wait_until() for this reason. Those that waiting_wake_all() has woken
 * count again once they have looked, and wake the client thread then. */
int threads_waiting(enum wait_reason reason);
/* Something has changed: all waiting threads check again. */
void waiting_wake_all(void);
/* This process will get no lease: all waits end with CUDA_ERROR_NOT_PERMITTED, for ever. */
void waiting_refuse(void);
/* Has waiting_refuse() been called? Any thread may ask. */
bool waiting_is_refused(void);

#endif
