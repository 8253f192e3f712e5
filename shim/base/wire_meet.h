/* wire_meet.h: the messages (wire.h) by which two processes of a job that share memory meet. */
#ifndef GPU_LEASE_WIRE_MEET_H
#define GPU_LEASE_WIRE_MEET_H

#include "base/wire_header.h"

/* cffi:begin */
/* GL_NAME: the name that the process has chosen at random. */
struct gl_name {
	struct gl_header header;
	uint8_t name[16]; /* GL_NAME_BYTES */
};

struct gl_meet {
	struct gl_header header;
	uint8_t name[16]; /* of the other process; all zero: the keeper of the chain */
	uint64_t number;  /* chosen by the asker; the answer repeats it */
	uint64_t what[2]; /* passed on to the other process: which memory is meant */
};

/* GL_MET: the descriptor is one end of a pair of sockets (SOCK_SEQPACKET). */
enum gl_met_code {
	GL_MET_INTRODUCED = 0, /* to the asker, with its end */
	GL_MET_ASKED = 1,      /* to the other process, with its end */
	GL_MET_NOBODY = 2,     /* to the asker: no process of its job has that name */
	GL_MET_LATER = 3,      /* to the asker: no process has that name yet; ask again */
	GL_MET_ABROAD = 4      /* as ASKED, and the memory is to stay on the device: the
	                        * asker's job cannot hold it together with this one's */
};

struct gl_met {
	struct gl_header header;
	uint32_t code; /* enum gl_met_code */
	uint32_t zero;
	uint64_t number;
	uint64_t what[2];
};
/* cffi:end */

_Static_assert(sizeof(struct gl_name) == 32, "wire layout");
_Static_assert(sizeof(struct gl_meet) == 56, "wire layout");
_Static_assert(sizeof(struct gl_met) == 48, "wire layout");

#endif
