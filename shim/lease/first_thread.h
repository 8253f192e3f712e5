/* first_thread.h: has the first thread of the program handled a signal while it waits for another
 * one? */
#ifndef GPU_LEASE_FIRST_THREAD_H
#define GPU_LEASE_FIRST_THREAD_H

#include <stdbool.h>

/* The client thread, again and again: has the first thread, which stood still at the last look,
 * been woken since then and gone on to stand still in the same place? */
bool first_thread_was_woken(void);

#endif
