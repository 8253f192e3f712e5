/* node_chunks.c: requests host memory for copies from gpu-leased, and gives it back.
 *
 * The daemon has made it, as files without a name. The memory is charged to the daemon's service
 * and not to the job, and its pages exist already. Answers come later, while the program goes on. A
 * request keeps its number until it is answered. If the daemon is replaced by another one the
 * request is repeated, and the new daemon gives the same memory for the same number. To give memory
 * back is a request as well.
 */
#include "memory/store/node_chunks.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/fork.h"
#include "base/random.h"
#include "gate/waiting.h"
#include "memory/host.h"
#include "memory/store/chunk_pages.h"
#include "memory/store/chunks.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_UNANSWERED 16 /* requests that the daemon has and has not answered */
/* After a refusal no memory is requested for so long. */
#define REFUSED_NS (UINT64_C(1) * 1000000000)

struct request {
	struct request *next;
	struct gl_host message; /* GL_HOST_TAKE or GL_HOST_GIVE */
	bool sent;              /* to this daemon */
	bool told;              /* to some daemon, which may have had the memory made */
};

/* chunks_lock guards all of these. */
static struct request *requests; /* those without an answer; the oldest comes first */
static uint64_t last_number;
static uint64_t requested;  /* bytes of all GL_HOST_TAKE in the list */
static uint64_t refused_at; /* now_ns() at the last refusal, or 0 */
static unsigned int n_sent; /* requests of the list that are sent */
static bool offered;        /* the daemon understands these messages */

static bool is_take(const struct request *request)
{
	return request->message.header.type == GL_HOST_TAKE;
}

/* Returns false if the host is out of memory. */
static bool enter(enum gl_type type, uint64_t number, uint64_t bytes)
{
	struct request *request = calloc(1, sizeof(*request)), **at = &requests;

	if (!request)
		return false;
	request->message =
	    (struct gl_host){message_header(type, sizeof(request->message)), number, bytes};
	while (*at)
		at = &(*at)->next;
	*at = request;
	requested += is_take(request) ? bytes : 0;
	return true;
}

static void remove_request(struct request **at)
{
	struct request *request = *at;

	requested -= is_take(request) ? request->message.bytes : 0;
	n_sent -= request->sent;
	*at = request->next;
	free(request);
}

/* The upper half is random and chosen once. So this program's numbers differ from those of a
 * program that the process executed before, whose memory has ended with it. */
static uint64_t new_number(void)
{
	uint32_t program;

	if (!last_number && random_bytes(&program, sizeof(program), 0))
		last_number = (uint64_t)program << 32;
	return ++last_number;
}

bool node_chunk_request(size_t size)
{
	bool entered;

	lock_take(&chunks_lock);
	entered = offered && (!refused_at || now_ns() - refused_at >= REFUSED_NS) &&
	          enter(GL_HOST_TAKE, new_number(), size);
	lock_give(&chunks_lock);
	if (entered)
		client_wake();
	return entered;
}

uint64_t node_chunks_requested(void)
{
	return requested;
}

/* Other processes may have the chunk's memory now. */
static void unmapped(const struct chunk *chunk)
{
	if (enter(GL_HOST_GIVE, chunk->number, chunk->size))
		client_wake();
}

/* -- the client thread ----------------------------------------------------------------- */

/* The daemon has no memory to give. What is to be given back can be so with the next daemon, and so
 * can what a daemon before may have made. */
static void remove_takes(void)
{
	for (struct request **at = &requests; *at;) {
		struct request *request = *at;

		if (is_take(request) && !request->told) {
			remove_request(at);
			continue;
		}
		if (is_take(request)) {
			requested -= request->message.bytes;
			request->message.header.type = GL_HOST_GIVE;
			n_sent -= request->sent;
			request->sent = false;
		}
		at = &request->next;
	}
}

void host_offered(bool now)
{
	lock_take(&chunks_lock);
	offered = now;
	if (!offered)
		remove_takes();
	lock_give(&chunks_lock);
}

bool host_next_message(struct gl_host *next)
{
	struct request *request;

	lock_take(&chunks_lock);
	request = offered && n_sent < MOST_UNANSWERED ? requests : NULL;
	while (request && request->sent)
		request = request->next;
	if (request) {
		request->sent = request->told = true;
		n_sent++;
		*next = request->message;
	}
	lock_give(&chunks_lock);
	return request;
}

void host_forget_daemon(void)
{
	lock_take(&chunks_lock);
	for (struct request *request = requests; request; request = request->next)
		request->sent = false;
	n_sent = 0;
	offered = false;
	lock_give(&chunks_lock);
}

static bool has_bytes(int descriptor, uint64_t bytes)
{
	struct stat found;

	return descriptor >= 0 && !fstat(descriptor, &found) && (uint64_t)found.st_size >= bytes;
}

/* The caller holds chunks_lock. Memory that cannot be mapped is given back. */
static void add_chunk(const struct request *request, int descriptor)
{
	uint64_t number = request->message.number, bytes = request->message.bytes;
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
	struct request **at;
	bool touch;

	lock_take(&chunks_lock);
	for (at = &requests; *at; at = &(*at)->next)
		if ((*at)->sent && (*at)->message.number == answer->number)
			break;
	if (*at && is_take(*at) && answer->code == GL_HOST_TAKEN)
		add_chunk(*at, descriptor);
	else if (*at && is_take(*at))
		refused_at = now_ns();
	if (*at)
		remove_request(at);
	touch = !requested;
	lock_give(&chunks_lock);
	if (descriptor >= 0)
		close(descriptor);
	debug("the daemon has answered a request for host memory with code %u", answer->code);
	if (touch)
		chunks_touch();
}

/* The child is another process, with requests of its own. */
static void in_child(void)
{
	requests = NULL;
	last_number = requested = refused_at = 0;
	n_sent = 0;
	offered = false;
}
FORK_WATCH(in_child);
