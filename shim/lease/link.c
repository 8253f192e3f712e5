/* link.c: sends to gpu-leased while there is a connection. */
#include "lease/link.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/fork.h"
#include "base/wire.h"
#include "channels/channels.h"
#include "gate/waiting.h"
#include "lease/connection.h"
#include "lease/stops.h"
#include "memory/changes.h"
#include "memory/kinds.h"

#include <stdatomic.h>

#include <stdio.h>
#include <string.h>

#define MEMORY_EVERY_NS INT64_C(4000000)
#define DETAILS_EVERY_NS INT64_C(20000000) /* of up to 16 devices: well below what is allowed */

static atomic_bool memory_is_news; /* memory has changed since MEMORY was last sent */

/* Only the client thread uses these. */
static uint64_t reported_at;
static bool served, lost;
static struct gl_details said[GL_MAX_DEVICES]; /* on this connection */
static bool details_are_news;                  /* after what the daemon was told of the memory */
static enum channels_state said_state;         /* of the channel groups, on this connection */
static unsigned int said_given_up;             /* stops, on this connection */
static bool details_wait;                      /* they are to be sent, and not yet */
static uint64_t details_at;                    /* when they were sent last */

/* Called by any thread, perhaps with locks held. */
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
	served = details_are_news = true;
	reported_at = details_at = 0;
	memset(said, 0, sizeof(said));
	said_state = CHANNELS_NONE;
	said_given_up = 0;
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
	details_are_news = true;
	reported_at = now_ns();
}

/* What has changed of them. */
void link_send_details(void)
{
	struct gl_details details[GL_MAX_DEVICES];
	uint32_t n;

	details_wait = details_are_news && connection_fd() >= 0;
	if (!details_wait || (int64_t)(now_ns() - details_at) < DETAILS_EVERY_NS)
		return;
	details_are_news = details_wait = false;
	details_at = now_ns();
	n = memory_details(details);
	for (uint32_t d = 0; d < n; d++) {
		if (!memcmp(&said[d], &details[d], sizeof(said[d])))
			continue;
		link_send(&details[d], sizeof(details[d]));
		said[d] = details[d];
		said[d].left = 0;
	}
}

CHANNELS_WATCH(client_wake);

void link_send_channels(void)
{
	static const enum gl_channels_state wired[] = {
	    [CHANNELS_NONE] = GL_CHANNELS_NONE,
	    [CHANNELS_CONTROLLED] = GL_CHANNELS_CONTROLLED,
	    [CHANNELS_REFUSED] = GL_CHANNELS_REFUSED,
	};
	struct gl_channels channels = {.header = message_header(GL_CHANNELS, sizeof(channels))};
	enum channels_state now = channels_state();

	if (!served || (now == said_state && stops_given_up() == said_given_up))
		return;
	said_state = now;
	said_given_up = stops_given_up();
	channels.state = wired[now];
	channels.given_up = said_given_up;
	snprintf(channels.reason, sizeof(channels.reason), "%s",
	         now == CHANNELS_REFUSED ? channels_reason() : stops_why());
	link_send(&channels, sizeof(channels));
}

void link_send_memory_when_due(void)
{
	if ((int64_t)(now_ns() - reported_at) >= MEMORY_EVERY_NS)
		link_send_memory();
}

int64_t link_pause_ns(void)
{
	if (connection_fd() < 0)
		return -1;
	if (atomic_load(&memory_is_news))
		return MEMORY_EVERY_NS;
	return details_wait ? DETAILS_EVERY_NS : -1;
}

static void in_child(void)
{
	atomic_store(&memory_is_news, false);
	served = lost = details_are_news = details_wait = false;
}
FORK_WATCH(in_child);
