/* wire_vectors.c: print the bytes of one message of each kind, as C lays them out. */
#include "base/wire.h"

#include <stdio.h>
#include <string.h>

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

/* Each is called as its row in messages.def, in small letters. */
#define SHOW(name, body, number, ...)                                                              \
	do {                                                                                       \
		struct body m = __VA_ARGS__;                                                       \
		struct gl_header *h = (struct gl_header *)&m;                                      \
		*h = (struct gl_header){GL_MAGIC, GL_VERSION, number, sizeof(m), 0};               \
		show(#name, &m, sizeof(m));                                                        \
	} while (0)

static void show_clients(void)
{
	SHOW(hello, gl_hello, GL_HELLO,
	     {.held_epoch = 5, .flags = GL_HELLO_WANTS, .n_devices = 1, .devices = {device()}});
	SHOW(memory, gl_memory, GL_MEMORY, {.n_devices = 1, .devices = {device()}});
	SHOW(request, gl_header, GL_REQUEST, {0});
	SHOW(released, gl_released, GL_RELEASED,
	     {.epoch = 6, .flags = GL_RELEASED_WANTS, .prefetch_bytes = 8, .prefetch_ns = 9});
	SHOW(stuck, gl_epoch, GL_STUCK, {.epoch = 19});
	SHOW(progress, gl_progress, GL_PROGRESS,
	     {.calls = 20, .busy_ns = 21, .seen_ns = 22, .wanted_ns = 23, .bursts = 24});
	SHOW(restored, gl_restored, GL_RESTORED, {.epoch = 24, .bytes = 25, .ns = 26});
	SHOW(why, gl_header, GL_WHY, {0});
	SHOW(name, gl_name, GL_NAME, {.name = "a name"});
	SHOW(meet, gl_meet, GL_MEET, {.name = "a name", .number = 30, .what = {31, 32}});
	SHOW(host_take, gl_host, GL_HOST_TAKE, {.number = 36, .bytes = 37});
	SHOW(host_give, gl_host, GL_HOST_GIVE, {.number = 38, .bytes = 39});
	SHOW(suspends, gl_header, GL_SUSPENDS, {0});
	SHOW(signalled, gl_header, GL_SIGNALLED, {0});
	SHOW(saves, gl_saves, GL_SAVES, {.at = 56});
	SHOW(parts, gl_header, GL_PARTS, {0});
	SHOW(ready, gl_header, GL_READY, {0});
	SHOW(rests, gl_header, GL_RESTS, {0});
	SHOW(works, gl_header, GL_WORKS, {0});
	SHOW(stranded, gl_header, GL_STRANDED, {0});
	SHOW(details, gl_details, GL_DETAILS,
	     {.left = 47,
	      .shared = 48,
	      .unhosted = 49,
	      .mapped = 50,
	      .other = 51,
	      .clean = GL_CLEAN_DRIVER});
	SHOW(channels, gl_channels, GL_CHANNELS,
	     {.state = GL_CHANNELS_REFUSED, .given_up = 55, .reason = "no control"});
	SHOW(claim, gl_claim, GL_CLAIM,
	     {.number = 42, .uuid = {1, 2, 3}, .bytes = 43, .least = 44});
}

static void show_the_daemons(void)
{
	SHOW(welcome, gl_welcome, GL_WELCOME,
	     {.flags = GL_WELCOME_OVERSUB | GL_WELCOME_CLEAN,
	      .n_devices = 1,
	      .job_id = 10,
	      .devices = {{.bytes = 11}}});
	SHOW(refused, gl_refused, GL_REFUSED, {.code = GL_REFUSED_LIMIT, .reason = "no"});
	SHOW(grant, gl_grant, GL_GRANT,
	     {.epoch = 12,
	      .idle_ns = 21,
	      .in_flight_ns = 22,
	      .n_devices = 1,
	      .devices = {{.bytes = 14}}});
	SHOW(revoke, gl_revoke, GL_REVOKE, {.epoch = 15, .deadline_ns = 16});
	SHOW(contended, gl_contended, GL_CONTENDED,
	     {.epoch = 17, .idle_ns = GL_IDLE_NEVER, .in_flight_ns = 18});
	SHOW(others, gl_memory, GL_OTHERS, {.n_devices = 1, .devices = {device()}});
	SHOW(step, gl_epoch, GL_STEP, {.epoch = 30});
	SHOW(resync, gl_header, GL_RESYNC, {0});
	SHOW(measure, gl_header, GL_MEASURE, {0});
	SHOW(watch, gl_header, GL_WATCH, {0});
	SHOW(carrier, gl_header, GL_CARRIER, {0});
	SHOW(evict, gl_memory, GL_EVICT, {.n_devices = 1, .devices = {{.bytes = 31}}});
	SHOW(preload, gl_memory, GL_PRELOAD, {.n_devices = 1, .devices = {{.bytes = 32}}});
	SHOW(expect, gl_memory, GL_EXPECT, {.n_devices = 1, .devices = {{.bytes = 33}}});
	SHOW(ahead, gl_memory, GL_AHEAD, {.n_devices = 1, .devices = {{.bytes = 39}}});
	SHOW(restore, gl_grant, GL_RESTORE,
	     {.epoch = 27, .idle_ns = GL_IDLE_NEVER, .n_devices = 1, .devices = {{.bytes = 29}}});
	SHOW(waits, gl_waits, GL_WAITS, {.code = GL_WAITS_CROWDED, .reason = "no room"});
	SHOW(named, gl_header, GL_NAMED, {0});
	SHOW(met, gl_met, GL_MET, {.code = GL_MET_ASKED, .number = 33, .what = {34, 35}});
	SHOW(host, gl_host_answer, GL_HOST, {.code = GL_HOST_FULL, .number = 40, .bytes = 41});
	SHOW(leave, gl_header, GL_LEAVE, {0});
	SHOW(claimed, gl_claimed, GL_CLAIMED,
	     {.code = GL_CLAIM_REFUSED, .number = 45, .bytes = 46, .reason = "full"});
	SHOW(run, gl_run, GL_RUN,
	     {.uuid = {1, 2, 3}, .kind = GL_RUN_DUTY, .begins = 53, .period_ms = 54, .value = 52});
	SHOW(moves, gl_header, GL_MOVES, {0});
	SHOW(moved, gl_moved, GL_MOVED, {.old = {1, 2, 3}, .fresh = {4, 5, 6}});
	SHOW(save, gl_header, GL_SAVE, {0});
}

int main(void)
{
	show_clients();
	show_the_daemons();
	return 0;
}
