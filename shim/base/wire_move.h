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
/* cffi:end */

_Static_assert(sizeof(struct gl_moved) == 48, "wire layout");

#endif
