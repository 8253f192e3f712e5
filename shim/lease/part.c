/* part.c: what part of its device's multiprocessors a component of a chain is to use. */
#include "lease/part.h"

#include "base/fork.h"
#include "base/wire.h"
#include "gate/waiting.h"
#include "lease/link.h"

#include <stdatomic.h>
#include <stdbool.h>

#define WHOLE 100

static _Atomic(uint32_t) said = WHOLE; /* percent, and 65536 times where it begins */
static atomic_bool heeds;              /* the program has asked */
static bool told;                      /* only the client thread uses it */

struct part part_ask(void)
{
	uint32_t now = atomic_load(&said);

	if (!atomic_exchange(&heeds, true) && !client_start())
		client_wake();
	return (struct part){(uint16_t)now, (uint16_t)(now >> 16)};
}

void part_take(uint64_t percent, uint16_t begins)
{
	uint32_t part = percent && percent < WHOLE ? (uint32_t)percent : WHOLE;

	atomic_store(&said, part | (uint32_t)(begins % 1000) << 16);
}

void part_speak(void)
{
	struct gl_header parts = message_header(GL_PARTS, sizeof(parts));

	if (told || !atomic_load(&heeds))
		return;
	told = true;
	link_send(&parts, sizeof(parts));
}

void part_forget_daemon(void)
{
	told = false;
}

static void in_child(void)
{
	atomic_store(&said, WHOLE);
	atomic_store(&heeds, false);
	told = false;
}
FORK_WATCH(in_child);
