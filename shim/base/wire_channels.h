/* wire_channels.h: the messages (wire.h) about the channel groups of a process: whether their time
 * slices can be set, and how they are to run. */
#ifndef GPU_LEASE_WIRE_CHANNELS_H
#define GPU_LEASE_WIRE_CHANNELS_H

#include "base/wire_header.h"

/* cffi:begin */
/* GL_CHANNELS. The last one counts. */
enum gl_channels_state {
	GL_CHANNELS_NONE = 0,       /* the process has no channel group yet */
	GL_CHANNELS_CONTROLLED = 1, /* it can set the slices of all its groups, and stop them */
	GL_CHANNELS_REFUSED = 2     /* it cannot: `reason` */
};

struct gl_channels {
	struct gl_header header;
	uint32_t state;    /* enum gl_channels_state */
	uint32_t given_up; /* stops so far that could not be done: its work was waited for */
	char reason[240];  /* GL_REASON_BYTES; for people: why not, or why the last one could not */
};

/* GL_RUN, of one device. The values are absolute: of each kind the last one counts, also for groups
 * that the process makes later. */
enum gl_run_kind {
	GL_RUN_SLICE = 1, /* value: us, the time slice of each compute group; 0: the driver's own */
	/* The groups may run in one part of each period only, which may reach into the next one.
	 * value: how long that is, begins: when it begins, per mille of a period. From 1000 on:
	 * always. Periods begin at their multiples on CLOCK_MONOTONIC, so all processes of a node
	 * have the same. */
	GL_RUN_DUTY = 2,
	/* The same, in place of that, and the program's copies are held as its kernels are. */
	GL_RUN_DUTY_COPIES = 3,
	/* To a process that has sent PARTS. value: what part of the multiprocessors it uses, per
	 * cent; begins: where that part begins, per mille of them. */
	GL_RUN_PART = 4
};

struct gl_run {
	struct gl_header header;
	uint8_t uuid[16];           /* GL_UUID_BYTES */
	uint32_t kind;              /* enum gl_run_kind, perhaps of a later release */
	uint16_t begins, period_ms; /* of a duty, or `begins` of a part; else 0 */
	uint64_t value;
};
/* cffi:end */

_Static_assert(sizeof(struct gl_channels) == 264, "wire layout");
_Static_assert(sizeof(struct gl_run) == 48, "wire layout");

#endif
