/* meeting.c: gets the process introduced to other processes of its job, by the daemon.
 *
 * Each process that shares memory has a name, which it chose at random. A process that asks for a
 * name gets one end of a pair of sockets; the process of that name, if it is of the same job, gets
 * the other. Requests that a daemon has not answered are repeated to the next daemon.
 */
#include "lease/meeting.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/fork.h"
#include "base/locks.h"
#include "base/process.h"
#include "base/random.h"
#include "driver/lookup.h"
#include "gate/waiting.h"
#include "lease/link.h"
#include "tenant/tenant.h"

#include <string.h>
#include <unistd.h>

#define LATER_US 20000                           /* before a request is repeated, after LATER */
#define LATER_SAID_NS (UINT64_C(5000) * 1000000) /* before the user is told about that */

enum progress { QUEUED, SENT, ANSWERED };

struct ask {
	struct ask *next;
	struct gl_meet message;
	enum progress progress;
	enum gl_met_code code;
	int end;
};

static struct ask *asks;
static uint64_t n_asks; /* so far, for their numbers */
static uint8_t own_name[GL_NAME_BYTES];
static bool has_name;
static enum progress naming; /* of NAME; ANSWERED: the present daemon knows the name */
static bool has_been_named;  /* some daemon has known the name; a later one will be told */
static bool client_ended;    /* nobody will be introduced any more */
static struct lock lock = LOCK(LOCK_MEETING);
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* -- threads of the program ---------------------------------------------------------- */

/* Why a wait has ended without an answer. */
static CUresult ended(void)
{
	return atomic_load(&process_ends) ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_PERMITTED;
}

/* Caller holds the lock. */
static void choose_name(void)
{
	has_name = random_bytes(own_name, sizeof(own_name), 0);
	naming = QUEUED;
}

CUresult meeting_own_name(uint8_t name[GL_NAME_BYTES])
{
	CUresult result = tenant_wait(); /* which also starts the client thread */

	if (result)
		return result;
	lock_take(&lock);
	if (!has_name)
		choose_name();
	client_wake();
	while (has_name && !has_been_named && !client_ended)
		lock_wait(&lock, &changed);
	if (!has_name)
		result = CUDA_ERROR_OPERATING_SYSTEM;
	else if (!has_been_named || client_ended)
		result = ended();
	memcpy(name, own_name, GL_NAME_BYTES);
	lock_give(&lock);
	return result;
}

bool meeting_is_own(const uint8_t name[GL_NAME_BYTES])
{
	bool is;

	lock_take(&lock);
	is = has_name && !memcmp(name, own_name, GL_NAME_BYTES);
	lock_give(&lock);
	return is;
}

/* Caller holds the lock. */
static void enter(struct ask *ask)
{
	ask->message.number = ++n_asks;
	ask->next = asks;
	asks = ask;
}

static void leave(struct ask *ask)
{
	struct ask **at = &asks;

	while (*at && *at != ask)
		at = &(*at)->next;
	if (*at)
		*at = ask->next;
}

static CUresult ask_once(struct ask *ask)
{
	CUresult result;

	lock_take(&lock);
	enter(ask);
	client_wake();
	while (ask->progress != ANSWERED && !client_ended)
		lock_wait(&lock, &changed);
	leave(ask);
	result = ask->progress == ANSWERED ? CUDA_SUCCESS : ended();
	lock_give(&lock);
	return result;
}

static void say_later(uint64_t since, bool *said)
{
	if (*said || now_ns() - since < LATER_SAID_NS)
		return;
	*said = true;
	complain("this process waits to open memory of another process of its job (CUDA IPC): "
	         "gpu-leased does not know that one yet, or has no file descriptors left; if this "
	         "goes on, ask the administrator to look at gpu-leased on this node");
}

CUresult meeting_ask(const uint8_t name[GL_NAME_BYTES], const uint64_t what[2], int *end)
{
	struct gl_meet message = {.header = message_header(GL_MEET, sizeof(message)),
	                          .what = {what[0], what[1]}};
	struct ask ask = {.code = GL_MET_LATER};
	CUresult result = tenant_wait();
	uint64_t since = now_ns();
	bool said = false;

	memcpy(message.name, name, GL_NAME_BYTES);
	while (!result && ask.code == GL_MET_LATER) {
		if (ask.progress == ANSWERED) {
			say_later(since, &said);
			pause_us(LATER_US);
		}
		ask = (struct ask){.message = message, .end = -1};
		result = ask_once(&ask);
	}
	if (result)
		return result;
	*end = ask.end;
	return ask.code == GL_MET_INTRODUCED && ask.end >= 0 ? CUDA_SUCCESS
	                                                     : CUDA_ERROR_INVALID_VALUE;
}

/* -- the client thread ---------------------------------------------------------------- */

static void send_name(void)
{
	struct gl_name message = {.header = message_header(GL_NAME, sizeof(message))};
	bool send;

	lock_take(&lock);
	send = has_name && naming == QUEUED;
	if (send)
		naming = SENT;
	memcpy(message.name, own_name, sizeof(message.name));
	lock_give(&lock);
	if (send)
		link_send(&message, sizeof(message));
}

static bool next_ask(struct gl_meet *message)
{
	struct ask *ask;

	lock_take(&lock);
	for (ask = asks; ask && ask->progress != QUEUED; ask = ask->next)
		;
	if (ask) {
		ask->progress = SENT;
		*message = ask->message;
	}
	lock_give(&lock);
	return ask;
}

/* If sending ends the connection, meeting_forget_daemon() queues the requests again. */
void meeting_speak(void)
{
	struct gl_meet message;

	send_name();
	if (next_ask(&message)) {
		link_send(&message, sizeof(message));
		client_wake(); /* there may be another request */
	}
}

void meeting_named(void)
{
	lock_take(&lock);
	if (naming == SENT)
		naming = ANSWERED;
	has_been_named |= naming == ANSWERED;
	pthread_cond_broadcast(&changed);
	lock_give(&lock);
}

void meeting_answer(const struct gl_met *met, int end)
{
	struct ask *ask;

	lock_take(&lock);
	for (ask = asks; ask && (ask->message.number != met->number || ask->progress != SENT);
	     ask = ask->next)
		;
	if (ask) {
		ask->progress = ANSWERED;
		ask->code = (enum gl_met_code)met->code;
		ask->end = end;
		pthread_cond_broadcast(&changed);
	}
	lock_give(&lock);
	if (!ask && end >= 0)
		close(end);
}

void meeting_forget_daemon(void)
{
	lock_take(&lock);
	naming = QUEUED;
	for (struct ask *ask = asks; ask; ask = ask->next)
		if (ask->progress == SENT)
			ask->progress = QUEUED;
	lock_give(&lock);
}

bool meeting_awaited(void)
{
	bool awaited;

	lock_take(&lock);
	awaited = asks || (has_name && !has_been_named);
	lock_give(&lock);
	return awaited;
}

void meeting_end(void)
{
	lock_take(&lock);
	client_ended = true;
	pthread_cond_broadcast(&changed);
	lock_give(&lock);
}

/* The child will choose a name of its own. */
static void in_child(void)
{
	lock_after_fork(&lock);
	pthread_cond_init(&changed, NULL);
	asks = NULL;
	has_name = has_been_named = client_ended = false;
	naming = QUEUED;
}
FORK_WATCH(in_child);
