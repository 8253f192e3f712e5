/* messages.c: messages from gpu-leased, and the first one to it. The client thread alone. */
#include "lease/messages.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/fork.h"
#include "base/wire.h"
#include "gate/gate.h"
#include "gate/waiting.h"
#include "lease/connection.h"
#include "lease/explain.h"
#include "lease/lease.h"
#include "lease/link.h"
#include "memory/memory.h"
#include "tenant/tenant.h"

static bool explains;

bool messages_explain(void)
{
	return explains;
}

void message_hello(void)
{
	struct gl_hello hello = {.header = message_header(GL_HELLO, sizeof(hello))};

	lease_hello(&hello);
	hello.n_devices = memory_report(hello.devices);
	link_send(&hello, sizeof(hello));
}

static void send_progress(void)
{
	struct gl_progress progress = {message_header(GL_PROGRESS, sizeof(progress)), gate_calls()};

	link_send(&progress, sizeof(progress));
}

static void take_welcome(const struct gl_welcome *message)
{
	explains = message->flags & GL_WELCOME_EXPLAINS;
	tenant_welcome(message);
	link_serves();
}

/* Who held a lease holds none any more: its job has ended. */
static void take_refusal(const struct gl_refused *message)
{
	gate_shut();
	waiting_refuse();
	complain("no lease for this process: %.*s", (int)sizeof(message->reason), message->reason);
}

/* What this daemon can, its WELCOME will say. */
static void take_resync(void)
{
	explains = false;
	lease_forget_daemon();
	message_hello();
}

/* A refusal is read in every version of the protocol. One of a lower version is from a daemon
 * that does not know ours yet. */
void message_take(const void *data, size_t size)
{
	const struct gl_header *h = data;
	const union {
		struct gl_welcome welcome;
		struct gl_refused refused;
		struct gl_memory others;
		struct gl_waits waits;
	} *m = data;

	if (size < sizeof(*h) || h->magic != GL_MAGIC || h->length != size)
		return;
	if (h->type == GL_REFUSED && size == sizeof(m->refused)) {
		if (h->version < GL_VERSION)
			connection_is_older();
		else
			take_refusal(&m->refused);
		return;
	}
	if (h->version != GL_VERSION)
		return;
	if (h->type == GL_WELCOME && size == sizeof(m->welcome))
		take_welcome(&m->welcome);
	else if (h->type == GL_WAITS && size == sizeof(m->waits))
		explain_answer(&m->waits, now_ns());
	else if (h->type == GL_RESYNC && size == sizeof(*h))
		take_resync();
	else if (h->type == GL_MEASURE && size == sizeof(*h))
		send_progress();
	else if (h->type == GL_OTHERS && size == sizeof(m->others))
		tenant_has_others(&m->others);
	else
		lease_take(data, size);
}

static void in_child(void)
{
	explains = false;
}
FORK_WATCH(in_child);
