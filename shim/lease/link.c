/* link.c: what the client thread says to gpu-leased while there is a connection. */
#include "lease/link.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/fork.h"
#include "base/wire.h"
#include "gate/waiting.h"
#include "lease/connection.h"
#include "memory/changes.h"
#include "memory/kinds.h"

#include <stdatomic.h>

#define MEMORY_EVERY_NS INT64_C(4000000)

static atomic_bool memory_is_news; /* the daemon has not heard of a change */

/* Of the client thread alone. */
static uint64_t reported_at;
static bool served, lost;

/* Of any thread. */
static void note_memory(void)
{
	if (!atomic_exchange(&memory_is_news, true))
		client_wake();
}
MEMORY_WATCH(note_memory);

void link_lose(void)
{
	connection_close();
	served = false;
	lost = true;
	debug("no connection with gpu-leased");
}

bool link_take_loss(void)
{
	bool news = lost;

	lost = false;
	return news;
}

void link_serves(void)
{
	served = true;
	connection_serves();
}

bool link_is_served(void)
{
	return served;
}

void link_send(const void *message, size_t size)
{
	if (connection_fd() >= 0 && !connection_send(message, size))
		link_lose();
}

void link_send_memory(void)
{
	struct gl_memory memory = {.header = message_header(GL_MEMORY, sizeof(memory))};

	if (!atomic_exchange(&memory_is_news, false))
		return;
	memory.n_devices = memory_report(memory.devices);
	link_send(&memory, sizeof(memory));
	reported_at = now_ns();
}

void link_send_memory_when_due(void)
{
	if ((int64_t)(now_ns() - reported_at) >= MEMORY_EVERY_NS)
		link_send_memory();
}

int64_t link_pause_ns(void)
{
	return atomic_load(&memory_is_news) && connection_fd() >= 0 ? MEMORY_EVERY_NS : -1;
}

static void in_child(void)
{
	atomic_store(&memory_is_news, false);
	served = lost = false;
}
FORK_WATCH(in_child);
