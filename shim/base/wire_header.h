/* wire_header.h: the header of every message (wire.h), the types of messages, and what they have in
 * common.
 */
#ifndef GPU_LEASE_WIRE_HEADER_H
#define GPU_LEASE_WIRE_HEADER_H

#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
#define GL_MAGIC 0x534C5047 /* "GPLS" in memory */
#define GL_VERSION 2
#define GL_OLDEST_VERSION 2 /* the oldest one that the daemon serves */
#define GL_MAX_DEVICES 16   /* devices in one gang */
#define GL_UUID_BYTES 16    /* as cuDeviceGetUuid returns them; NVML's text without its prefix */
#define GL_NAME_BYTES 16    /* the name of a process that shares memory */
#define GL_REASON_BYTES 240 /* a sentence, NUL-terminated UTF-8 */
#define GL_MAX_MESSAGE 1024 /* no message is longer */

enum gl_sender { GL_CLIENT = 1, GL_DAEMON = 2 };

enum gl_type {
#define MESSAGE(name, number, body, sender) GL_##name = number,
#include "base/messages.def"
#undef MESSAGE
};

/* One row of messages.def. */
struct gl_message {
	const char *name; /* without GL_ */
	const char *body; /* the name of its struct */
	uint32_t size;    /* bytes */
	uint16_t type;    /* enum gl_type */
	uint16_t sender;  /* enum gl_sender */
};

const struct gl_message *gl_message_at(uint32_t index); /* NULL after the last row */
const struct gl_message *gl_message_of(uint32_t type);  /* NULL if this release has no such type */

struct gl_header {
	uint32_t magic;   /* GL_MAGIC */
	uint16_t version; /* GL_VERSION */
	uint16_t type;    /* enum gl_type */
	uint32_t length;  /* of the whole message, bytes */
	uint32_t zero;
};
/* cffi:end */

_Static_assert(sizeof(struct gl_header) == 16, "wire layout");

static inline struct gl_header message_header(enum gl_type type, size_t length)
{
	return (struct gl_header){GL_MAGIC, GL_VERSION, (uint16_t)type, (uint32_t)length, 0};
}

#endif
