/* node_chunks.c: host memory for copies that gpu-leased has made, as files without a name.
 *
 * It is charged to the node's service and not to the job, and its pages are there already. What
 * has been asked for comes later, beside the program's work. Every question keeps its number
 * until it has been answered, so that the next daemon can be asked the same: it gives the same
 * memory. What is given back is a question as well.
 */
#include "memory/swap/node_chunks.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/fork.h"
#include "gate/waiting.h"
#include "memory/host.h"
#include "memory/swap/chunks.h"
#include "memory/swap/touching.h"

#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNANSWERED 16                         /* questions that are with the daemon at once */
#define REFUSED_NS (UINT64_C(1) * 1000000000) /* after a refusal nothing is asked for so long */

struct ask {
	struct ask *next;
	struct gl_host message; /* GL_HOST_TAKE or GL_HOST_GIVE */
	bool sent;
};

/* All under chunks_lock. The oldest question comes first. */
static struct ask *asks;
static uint64_t last_number, coming, refused_at;
static unsigned int n_sent;
static bool offered;

static bool takes(const struct ask *ask)
{
	return ask->message.header.type == GL_HOST_TAKE;
}

static bool enter(enum gl_type type, uint64_t number, uint64_t bytes)
{
	struct ask *ask = calloc(1, sizeof(*ask)), **at = &asks;

	if (!ask)
		return false;
	ask->message = (struct gl_host){message_header(type, sizeof(ask->message)), number, bytes};
	while (*at)
		at = &(*at)->next;
	*at = ask;
	coming += takes(ask) ? bytes : 0;
	return true;
}

static void leave(struct ask **at)
{
	struct ask *ask = *at;

	coming -= takes(ask) ? ask->message.bytes : 0;
	n_sent -= ask->sent;
	*at = ask->next;
	free(ask);
}

/* The upper half is chosen once, so that a program which this process was before, and whose
 * memory has ended with it, is not taken for this one. */
static uint64_t new_number(void)
{
	uint32_t program;

	if (!last_number && getrandom(&program, sizeof(program), 0) == (ssize_t)sizeof(program))
		last_number = (uint64_t)program << 32;
	return ++last_number;
}

bool node_chunk_ask(size_t size)
{
	bool asked;

	lock_take(&chunks_lock);
	asked = offered && (!refused_at || now_ns() - refused_at >= REFUSED_NS) &&
	        enter(GL_HOST_TAKE, new_number(), size);
	lock_give(&chunks_lock);
	if (asked)
		client_wake();
	return asked;
}

uint64_t node_chunks_coming(void)
{
	return coming;
}

/* It can be had by others. */
static void unmapped(const struct chunk *chunk)
{
	if (enter(GL_HOST_GIVE, chunk->number, chunk->size))
		client_wake();
}

/* -- the client thread ----------------------------------------------------------------- */

/* Without any what has been asked for does not come; what is to be given back may be so later. */
static void end_questions(void)
{
	for (struct ask **at = &asks; *at;) {
		if (takes(*at))
			leave(at);
		else
			at = &(*at)->next;
	}
}

void host_offered(bool now)
{
	lock_take(&chunks_lock);
	offered = now;
	if (!offered)
		end_questions();
	lock_give(&chunks_lock);
}

bool host_next_message(struct gl_host *next)
{
	struct ask *ask;

	lock_take(&chunks_lock);
	for (ask = offered && n_sent < UNANSWERED ? asks : NULL; ask && ask->sent; ask = ask->next)
		;
	if (ask) {
		ask->sent = true;
		n_sent++;
		*next = ask->message;
	}
	lock_give(&chunks_lock);
	return ask;
}

void host_forget_daemon(void)
{
	lock_take(&chunks_lock);
	for (struct ask *ask = asks; ask; ask = ask->next)
		ask->sent = false;
	n_sent = 0;
	offered = false;
	lock_give(&chunks_lock);
}

static bool has_bytes(int descriptor, uint64_t bytes)
{
	struct stat found;

	return descriptor >= 0 && !fstat(descriptor, &found) && (uint64_t)found.st_size >= bytes;
}

/* Caller holds the lock. What cannot be used here goes back. */
static void take_in(const struct ask *ask, int descriptor)
{
	uint64_t number = ask->message.number, bytes = ask->message.bytes;
	struct chunk *chunk = has_bytes(descriptor, bytes) ? chunk_map(descriptor, bytes) : NULL;

	if (!chunk) {
		refused_at = now_ns();
		enter(GL_HOST_GIVE, number, bytes);
		return;
	}
	chunk->number = number;
	chunk->unmapped = unmapped;
}

void host_answer(const struct gl_host_answer *answer, int descriptor)
{
	struct ask **at;
	bool touch;

	lock_take(&chunks_lock);
	for (at = &asks; *at; at = &(*at)->next)
		if ((*at)->sent && (*at)->message.number == answer->number)
			break;
	if (*at && takes(*at) && answer->code == GL_HOST_TAKEN)
		take_in(*at, descriptor);
	else if (*at && takes(*at))
		refused_at = now_ns();
	if (*at)
		leave(at);
	touch = !coming;
	lock_give(&chunks_lock);
	if (descriptor >= 0)
		close(descriptor);
	debug("host memory: answer %u", answer->code);
	if (touch)
		chunks_touch();
}

/* The child is another process, and asks for its own. */
static void in_child(void)
{
	asks = NULL;
	last_number = coming = refused_at = 0;
	n_sent = 0;
	offered = false;
}
FORK_WATCH(in_child);
