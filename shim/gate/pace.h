/* pace.h: how fast the gate lets work in while another job waits for the device.
 *
 * Each pace is one file. It gives out credit: a thread draws credit for several calls at once, so
 * that most calls take no lock. The gate asks the pace only while it is bounded (gate_bound()). A
 * pace that keeps something of a context forgets it in a CONTEXT_WATCH().
 */
#ifndef GPU_LEASE_PACE_H
#define GPU_LEASE_PACE_H

#include <stdint.h>

/* cffi:begin */
struct pace {
	/* The client thread: from now on another job waits, and at most `ns` of work may be in
	 * flight. Also called when that amount changes. */
	void (*begin)(uint64_t ns);
	/* A thread of the program, without locks: returns how many calls it may make now. 0: none;
	 * it should draw again after *pause_us microseconds. */
	int (*draw)(long *pause_us);
	/* The client thread: no other job waits any more. */
	void (*end)(void);
};
/* cffi:end */

/* pace_flight.c: limits the work in flight, by measuring how long calls take. */
extern const struct pace pace_flight;

#endif
