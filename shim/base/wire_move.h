/* wire_move.h: the messages (wire.h) to the processes of a job that moves to another GPU. */
#ifndef GPU_LEASE_WIRE_MOVE_H
#define GPU_LEASE_WIRE_MOVE_H

#include "base/wire_header.h"

/* cffi:begin */
/* GL_MOVED: what was the GPU `old` for the process is `fresh`, and the other way round. The same
 * GPU twice: the job has not moved. */
struct gl_moved {
	struct gl_header header;
	uint8_t old[16]; /* GL_UUID_BYTES */
	uint8_t fresh[16];
};

/* Of GL_CARRIER's sockets (SOCK_SEQPACKET), the other of which a carrier has: a process of the
 * daemon's that copies memory from one GPU to another. A request comes with a descriptor of a
 * segment's memory, and BACK with a second one, of the memory that the carrier has made for it. The
 * answers come in the order of the requests, that to AWAY with the descriptor of the memory that
 * has the bytes now. A carrier that fails with one of them ends. */
enum gl_carry_what { GL_CARRY_AWAY = 1, GL_CARRY_BACK = 2 };

struct gl_carry {
	uint32_t what; /* enum gl_carry_what */
	uint32_t zero;
	uint64_t bytes;
};

/* failed: there is no room for it on the other GPU. */
struct gl_carried {
	uint32_t failed;
	uint32_t zero;
};
/* cffi:end */

_Static_assert(sizeof(struct gl_moved) == 48, "wire layout");
_Static_assert(sizeof(struct gl_carry) == 16, "wire layout");
_Static_assert(sizeof(struct gl_carried) == 8, "wire layout");

#endif
