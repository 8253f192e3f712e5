/* bursts.h: when long bursts of the program's work begin, and when it rests, for who asks
 * (GL_WATCH). */
#ifndef GPU_LEASE_BURSTS_H
#define GPU_LEASE_BURSTS_H

#include <stdbool.h>
#include <stdint.h>

/* cffi:begin */
enum bursts_news {
	BURSTS_NOTHING,
	BURSTS_RESTS, /* it rests: it need not be protected from others */
	BURSTS_WORKS  /* it works again */
};

struct bursts {
	bool rests;                    /* that was the last of the news */
	uint64_t worked_ns, rested_ns; /* of the present burst, and of the pause since */
};
/* cffi:end */

/* The program has worked, or has not, for so many ns more. All 0: nobody has asked before. */
enum bursts_news bursts_note(struct bursts *bursts, bool works, uint64_t ns);

#endif
