/* wire_save.h: the messages (wire.h) to the processes of a job whose memory is saved to files, and
 * the words in which such a process and whoever saves it (leased/saving) speak from then on. */
#ifndef GPU_LEASE_WIRE_SAVE_H
#define GPU_LEASE_WIRE_SAVE_H

#include "base/wire_header.h"

/* cffi:begin */
/* Whose turn it is: what the process has done, and what it shall do. */
enum gl_saved_state {
	GL_SAVED_LISTED = 1, /* it has listed its copies, and waits */
	GL_SAVED_GIVE = 2,   /* all of them are saved: give their memory up, and the connection */
	GL_SAVED_GIVEN = 3,  /* it has: nothing but addresses is left of them */
	GL_SAVED_TAKE = 4,   /* get memory at those addresses again */
	GL_SAVED_TAKEN = 5,  /* it has */
	GL_SAVED_FILLED = 6, /* they are as they were: go on */
	GL_SAVED_OVER = 7    /* it does */
};

/* Copies in the memory of the process. */
struct gl_range {
	uint64_t at;
	uint64_t bytes;
};

/* Lies in the memory of the process, where its user's processes read and write it. beats: whoever
 * saves it changes it at least once a second as long as the state is GL_SAVED_LISTED. A GPU `old`
 * is `fresh` from GL_SAVED_FILLED on, and the other way round. */
struct gl_saved {
	uint32_t state; /* enum gl_saved_state */
	uint32_t beats;
	uint64_t n;
	uint64_t ranges; /* where n gl_range lie */
	uint8_t old[16]; /* GL_UUID_BYTES */
	uint8_t fresh[16];
};

/* GL_SAVES: gl_saved lies at that address. 0: the process cannot list its copies. */
struct gl_saves {
	struct gl_header header;
	uint64_t at;
};
/* cffi:end */

_Static_assert(sizeof(struct gl_range) == 16, "wire layout");
_Static_assert(sizeof(struct gl_saved) == 56, "wire layout");
_Static_assert(sizeof(struct gl_saves) == 24, "wire layout");

#endif
