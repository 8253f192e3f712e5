/* pace.h: how fast the gate lets work in while somebody waits for the device.
 *
 * A pace is one file. It hands out credit: a thread draws some for several calls at once, and
 * then a call costs it no lock. The gate asks only while it is bounded (gate_bound()). What a pace
 * knows of a context it forgets with a CONTEXT_WATCH().
 */
#ifndef GPU_LEASE_PACE_H
#define GPU_LEASE_PACE_H

#include <stdint.h>

/* cffi:begin */
struct pace {
	void (*begin)(uint64_t ns); /* somebody waits: so much work may be in flight */
	/* Of a thread of the program: how many calls may pass now; 0: none, try again after so
	 * many microseconds. */
	int (*draw)(long *pause_us);
	void (*end)(void); /* nobody waits any more */
};
/* cffi:end */

/* pace_flight.c: by what is in flight. */
extern const struct pace pace_flight;

#endif
