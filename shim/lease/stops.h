/* stops.h: stops of this process's work in mid-kernel, as the lease asks for them.
 *
 * Of the client thread.
 */
#ifndef GPU_LEASE_STOPS_H
#define GPU_LEASE_STOPS_H

#include "lease/port.h"

extern const struct lease_stops process_stops;

/* Is work stopped in mid-kernel from now on, or always waited for? */
void stops_allow(bool allowed);
/* How many stops have been given up so far, so that work was waited for. */
unsigned int stops_given_up(void);
/* Why the last of them was, for people; "": none was. */
const char *stops_why(void);

#endif
