/* carrier.h: segments leave straight for the GPU to which the job moves, and come back there.
 *
 * A process of the daemon's, the carrier, copies their bytes to memory that it makes on that GPU
 * (wire_move.h). Its descriptor is their copy: whoever has it open keeps that memory, so the bytes
 * are this process's own, whatever becomes of the carrier. When the process is on the other GPU, or
 * stays, a carrier copies them into new segments.
 *
 * The client thread calls these functions.
 */
#ifndef GPU_LEASE_CARRIER_H
#define GPU_LEASE_CARRIER_H

#include "memory/swap/copier.h"
#include "memory/swap/lane.h"

#define CARRIER_DEPTH 64 /* the most requests without an answer */

enum carrier_answer {
	CARRIER_BEGUN,
	CARRIER_LATER, /* it has enough to do */
	CARRIER_NONE,  /* it does not take this segment, or there is none */
	CARRIER_LOST   /* the program has closed our descriptor of what is away */
};

/* -- the caller may hold swap_lock --------------------------------------------------- */

/* Would the carrier take the segment away? */
bool carrier_takes(const struct segment *segment);
/* Is the segment's copy memory of a carrier's? */
bool carrier_has(const struct segment *segment);
/* Is there a carrier that can bring it back? */
bool carrier_is_there(void);
/* Requests without an answer. */
unsigned int carrier_busy(void);

/* Is the move over, and something still to be brought back? */
bool carrier_brings_back(void);

/* -- without swap_lock ----------------------------------------------------------------- */

/* Asks for a segment, which is being moved, to be taken away or to be brought back. */
enum carrier_answer carrier_ask(struct segment *segment, bool out);
/* The next segment that has arrived, or has not (result). *copy: its copy if it is away, and NULL
 * if it is back. Returns false if there is none now. */
bool carrier_take(struct transfer *out, struct copy **copy);
/* The carrier may end, if the move is over and all is back. */
void carrier_end_if_done(void);

#endif
