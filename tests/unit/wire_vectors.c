/* wire_vectors.c: print the bytes of one message of each kind, as C lays them out. */
#include "base/wire.h"

#include <stdio.h>
#include <string.h>

static struct gl_header header(enum gl_type type, size_t length)
{
	return (struct gl_header){GL_MAGIC, GL_VERSION, (uint16_t)type, (uint32_t)length, 0};
}

static struct gl_device device(void)
{
	struct gl_device d = {.bytes = 3, .fixed = 4, .resident = 23};

	for (int i = 0; i < GL_UUID_BYTES; i++)
		d.uuid[i] = (uint8_t)(i + 1);
	return d;
}

static void show(const char *name, const void *message, size_t size)
{
	const uint8_t *bytes = message;

	printf("%s ", name);
	for (size_t i = 0; i < size; i++)
		printf("%02x", bytes[i]);
	printf("\n");
}

#define SHOW_AS(said, name, ...)                                                                   \
	do {                                                                                       \
		struct gl_##name m = __VA_ARGS__;                                                  \
		show(said, &m, sizeof(m));                                                         \
	} while (0)
#define SHOW(name, ...) SHOW_AS(#name, name, __VA_ARGS__)

int main(void)
{
	SHOW(hello, {.header = header(GL_HELLO, sizeof(m)),
	             .held_epoch = 5,
	             .flags = GL_HELLO_WANTS,
	             .n_devices = 1,
	             .devices = {device()}});
	SHOW(memory,
	     {.header = header(GL_MEMORY, sizeof(m)), .n_devices = 1, .devices = {device()}});
	SHOW(released, {.header = header(GL_RELEASED, sizeof(m)),
	                .epoch = 6,
	                .reason = GL_RELEASE_IDLE,
	                .flags = GL_RELEASED_WANTS,
	                .drain_ns = 7,
	                .prefetch_bytes = 8,
	                .prefetch_ns = 9});
	SHOW(epoch, {.header = header(GL_STUCK, sizeof(m)), .epoch = 19});
	SHOW(progress, {.header = header(GL_PROGRESS, sizeof(m)), .calls = 20});
	SHOW(restored,
	     {.header = header(GL_RESTORED, sizeof(m)), .epoch = 24, .bytes = 25, .ns = 26});
	SHOW(welcome, {.header = header(GL_WELCOME, sizeof(m)),
	               .flags = GL_WELCOME_OVERSUB | GL_WELCOME_EXPLAINS,
	               .n_devices = 1,
	               .job_id = 10,
	               .devices = {{.bytes = 11}}});
	SHOW(grant, {.header = header(GL_GRANT, sizeof(m)),
	             .epoch = 12,
	             .quantum_ns = 13,
	             .idle_ns = 21,
	             .in_flight_ns = 22,
	             .flags = GL_GRANT_SHARED,
	             .n_devices = 1,
	             .devices = {{.bytes = 14}}});
	SHOW_AS("restore", grant,
	        {.header = header(GL_RESTORE, sizeof(m)),
	         .epoch = 27,
	         .quantum_ns = 28,
	         .idle_ns = GL_IDLE_NEVER,
	         .n_devices = 1,
	         .devices = {{.bytes = 29}}});
	SHOW(revoke, {.header = header(GL_REVOKE, sizeof(m)), .epoch = 15, .deadline_ns = 16});
	SHOW(contended, {.header = header(GL_CONTENDED, sizeof(m)),
	                 .epoch = 17,
	                 .idle_ns = GL_IDLE_NEVER,
	                 .in_flight_ns = 18});
	SHOW(refused,
	     {.header = header(GL_REFUSED, sizeof(m)), .code = GL_REFUSED_LIMIT, .reason = "no"});
	SHOW(
	    waits,
	    {.header = header(GL_WAITS, sizeof(m)), .code = GL_WAITS_CROWDED, .reason = "no room"});
	return 0;
}
