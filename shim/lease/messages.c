/* messages.c: handles messages from gpu-leased, and sends the first one to it. */
#include "lease/messages.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/fork.h"
#include "base/wire.h"
#include "channels/channels.h"
#include "gate/gate.h"
#include "gate/waiting.h"
#include "lease/connection.h"
#include "lease/explain.h"
#include "lease/host_memory.h"
#include "lease/keeper.h"
#include "lease/link.h"
#include "lease/meeting.h"
#include "lease/part.h"
#include "lease/process_lease.h"
#include "lease/saving.h"
#include "lease/stops.h"
#include "lease/suspend.h"
#include "memory/carried.h"
#include "memory/claims.h"
#include "memory/kinds.h"
#include "memory/shared.h"
#include "tenant/tenant.h"

#include <string.h>
#include <unistd.h>

#define MOST_SLICE_US UINT64_C(1000000)

static bool greets; /* HELLO is due */

void message_hello(void)
{
	greets = true;
	message_greet();
}

bool message_greet(void)
{
	struct gl_hello hello = {.header = message_header(GL_HELLO, sizeof(hello))};

	if (!greets)
		return true;
	if (!lease_may_greet(&process_lease))
		return false;
	greets = false;
	lease_hello(&process_lease, &hello);
	hello.flags |= GL_HELLO_MOVES | GL_HELLO_SAVES | GL_HELLO_CARRIES;
	if (keeper_is())
		hello.flags |= GL_HELLO_KEEPER;
	hello.n_devices = memory_report(hello.devices);
	link_send(&hello, sizeof(hello));
	return true;
}

static void send_progress(void)
{
	struct gl_progress progress = {.header = message_header(GL_PROGRESS, sizeof(progress)),
	                               .calls = gate_calls()};

	lease_measure(&process_lease, &progress);
	link_send(&progress, sizeof(progress));
}

static void take_welcome(const struct gl_welcome *message)
{
	host_memory_offered(message->flags & GL_WELCOME_HOST);
	tenant_welcome(message);
	carried_forget_daemon();
	link_serves();
}

static void take_run(const struct gl_run *run)
{
	if (run->kind == GL_RUN_SLICE)
		channels_set_slice(run->uuid,
		                   run->value < MOST_SLICE_US ? run->value : MOST_SLICE_US);
	else if (run->kind == GL_RUN_DUTY || run->kind == GL_RUN_DUTY_COPIES)
		channels_set_duty(run->uuid,
		                  &(struct duty){run->value < 1000 ? (uint16_t)run->value : 1000,
		                                 run->begins % 1000, run->period_ms,
		                                 run->kind == GL_RUN_DUTY_COPIES});
	else if (run->kind == GL_RUN_PART)
		part_take(run->value, run->begins);
}

/* The driver has restored the process on another GPU, or on the same one. */
static void take_moved(const struct gl_moved *moved)
{
	stops_allow(true);
	lease_moves(&process_lease, false);
	carried_move_ends();
	if (memcmp(moved->old, moved->fresh, GL_UUID_BYTES))
		saving_process_moved(moved->old, moved->fresh);
}

/* A refusal also ends a lease that the process holds: its job has ended. */
static void take_refusal(const struct gl_refused *message)
{
	lease_end(&process_lease);
	waiting_refuse();
	complain("no lease for this process: %.*s", (int)sizeof(message->reason), message->reason);
}

static void take_resync(void)
{
	explain_forget_daemon(now_ns());
	stops_allow(true);
	lease_moves(&process_lease, false);
	channels_keep();
	meeting_forget_daemon();
	host_memory_forget_daemon();
	suspend_forget_daemon();
	part_forget_daemon();
	lease_forget_daemon(&process_lease);
	message_hello();
}

/* Handles a message of a daemon of our version. Messages that only clients send are ignored. */
static void take_known(const void *data, enum gl_type type)
{
	switch (type) {
	case GL_WELCOME:
		take_welcome(data);
		break;
	case GL_WAITS:
		explain_answer(data, now_ns());
		break;
	case GL_RESYNC:
		take_resync();
		break;
	case GL_CLAIMED:
		claims_answer(data);
		break;
	case GL_NAMED:
		meeting_named();
		break;
	case GL_MEASURE:
		channels_check_slices();
		send_progress();
		break;
	case GL_RUN:
		take_run(data);
		break;
	case GL_MOVES:
		stops_allow(false);
		lease_moves(&process_lease, true);
		break;
	case GL_MOVED:
		take_moved(data);
		break;
	case GL_SAVE:
		saving_run();
		break;
	case GL_OTHERS:
		tenant_has_others(data);
		break;
	case GL_GRANT:
	case GL_RESTORE:
	case GL_REVOKE:
	case GL_CONTENDED:
	case GL_STEP:
	case GL_EVICT:
	case GL_LEAVE:
	case GL_PRELOAD:
	case GL_EXPECT:
	case GL_AHEAD:
	case GL_WATCH:
		lease_take(&process_lease, data);
		break;
/* Clients alone send these. */
#define FROM_CLIENT(type) case type:
#define FROM_DAEMON(type)
#define MESSAGE(name, number, body, sender) FROM_##sender(GL_##name)
#include "base/messages.def"
#undef MESSAGE
	case GL_REFUSED: /* take() */
	case GL_HOST:    /* host_memory_take() */
	case GL_MET:     /* take_met() */
	case GL_CARRIER: /* take_carrier() */
		break;
	}
}

/* Refusals are read in every version of the protocol. One of a lower version comes from a daemon
 * that has not been updated yet. */
static void take(const void *data, size_t size)
{
	const struct gl_header *h = data;
	const struct gl_message *known;

	if (size < sizeof(*h) || h->magic != GL_MAGIC || h->length != size)
		return;
	known = gl_message_of(h->type);
	if (!known || known->sender != GL_DAEMON || known->size != size)
		return;
	debug("hears %s", known->name);
	if (h->type == GL_REFUSED && h->version < GL_VERSION)
		connection_is_older();
	else if (h->type == GL_REFUSED)
		take_refusal(data);
	else if (h->version == GL_VERSION)
		take_known(data, known->type);
}

/* Handles GL_MET: another process of the job wants to open memory of this one, or a request of this
 * process is answered. Returns false for any other message. */
static bool take_met(const struct gl_met *message, size_t size, int descriptor)
{
	bool is = size == sizeof(*message) && message->header.magic == GL_MAGIC &&
	          message->header.version == GL_VERSION && message->header.type == GL_MET;

	if (is && message->code != GL_MET_ASKED && message->code != GL_MET_ABROAD)
		meeting_answer(message, descriptor);
	else if (is && descriptor >= 0 && keeper_is())
		keeper_take(message->what, descriptor, message->code == GL_MET_ABROAD);
	else if (is && descriptor >= 0)
		shared_serve(message->what, descriptor, false);
	else if (is && descriptor >= 0)
		close(descriptor);
	return is;
}

/* Handles GL_CARRIER. The descriptor of any other message is closed, and the result is false. A
 * process without room for the descriptor has lost it. */
static bool take_carrier(const struct gl_header *message, size_t size, int descriptor)
{
	bool is = size == sizeof(*message) && message->magic == GL_MAGIC &&
	          message->version == GL_VERSION && message->type == GL_CARRIER;

	if (is)
		carried_meet(descriptor);
	else if (descriptor >= 0)
		close(descriptor);
	return is;
}

void message_take(const void *data, size_t size, int descriptor)
{
	if (!host_memory_take(data, size, descriptor) && !take_met(data, size, descriptor) &&
	    !take_carrier(data, size, descriptor))
		take(data, size);
}

static void in_child(void)
{
	greets = false;
}
FORK_WATCH(in_child);
