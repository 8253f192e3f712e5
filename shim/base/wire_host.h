/* wire_host.h: the messages (wire.h) about host memory for copies, and about why memory stays on a
 * device.
 */
#ifndef GPU_LEASE_WIRE_HOST_H
#define GPU_LEASE_WIRE_HOST_H

#include "base/wire_header.h"

/* cffi:begin */
/* GL_HOST_TAKE, GL_HOST_GIVE. number: chosen by the process, a different one for each piece of
 * memory. Its upper half is random and the same for all numbers of a program: it tells the programs
 * apart that one process executes one after the other. bytes: a multiple of GL_HOST_UNIT. */
#define GL_HOST_UNIT 2097152
struct gl_host {
	struct gl_header header;
	uint64_t number;
	uint64_t bytes;
};

enum gl_host_code {
	GL_HOST_TAKEN = 0,  /* with a descriptor: a file of that size whose pages are allocated */
	GL_HOST_GIVEN = 1,  /* the node has taken the memory back */
	GL_HOST_FULL = 2,   /* the node's memory for copies is used up, or the job's part of it */
	GL_HOST_FAILED = 3, /* the node cannot allocate any now */
};

struct gl_host_answer {
	struct gl_header header;
	uint32_t code; /* enum gl_host_code */
	uint32_t zero;
	uint64_t number;
	uint64_t bytes;
};

/* GL_CLAIM. number: the answer repeats it. bytes: how much the process would like to have on the
 * device in total; least: how much it needs now. A smaller claim than before takes effect at once.
 */
struct gl_claim {
	struct gl_header header;
	uint64_t number;
	uint8_t uuid[16]; /* GL_UUID_BYTES */
	uint64_t bytes;
	uint64_t least;
};

/* Is memory that is what its copy is known for that (GL_WELCOME_CLEAN)? If not: why. */
enum gl_clean {
	GL_CLEAN_UNKNOWN = 0,  /* nothing has left that could be */
	GL_CLEAN_ON = 1,       /* the device has computed a fingerprint of known bytes rightly */
	GL_CLEAN_SITE = 2,     /* the site does not want it */
	GL_CLEAN_DRIVER = 3,   /* the driver lacks functions, or refuses the module or the kernel */
	GL_CLEAN_WRONG = 4,    /* the device's fingerprint of known bytes was wrong */
	GL_CLEAN_NO_RANDOM = 5 /* the kernel has no random keys */
};

/* GL_DETAILS, of one device. left: bytes of swapped memory that have left the device without being
 * copied, since the last message. The others are what of gl_device.fixed is fixed for which reason:
 * shared with other processes; no host memory for it; mapped by the program and known to others, or
 * in a way that cannot be moved; all else (arrays, memory of graphs, what the driver cannot copy).
 */
struct gl_details {
	struct gl_header header;
	uint8_t uuid[16]; /* GL_UUID_BYTES */
	uint64_t left;
	uint64_t shared;
	uint64_t unhosted;
	uint64_t mapped;
	uint64_t other;
	uint32_t clean; /* enum gl_clean, also of later releases */
	uint32_t zero;
};

enum gl_claim_code {
	GL_CLAIM_GRANTED = 0, /* the process may have `bytes` on the device */
	GL_CLAIM_REFUSED = 1, /* it may not have more than `bytes` */
	GL_CLAIM_WAITS = 2    /* the final answer will come when host memory is free */
};

struct gl_claimed {
	struct gl_header header;
	uint32_t code; /* enum gl_claim_code */
	uint32_t zero;
	uint64_t number;
	uint64_t bytes;
	uint8_t uuid[16];
	char reason[232]; /* a sentence, NUL-terminated UTF-8; empty for GL_CLAIM_GRANTED */
};
/* cffi:end */

_Static_assert(sizeof(struct gl_host) == 32, "wire layout");
_Static_assert(sizeof(struct gl_details) == 80, "wire layout");
_Static_assert(sizeof(struct gl_claim) == 56, "wire layout");
_Static_assert(sizeof(struct gl_claimed) == 288, "wire layout");
_Static_assert(sizeof(struct gl_host_answer) == 40, "wire layout");

#endif
