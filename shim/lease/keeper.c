/* keeper.c: answers those who ask for the keeper of the chain, or for its memory. */
#include "lease/keeper.h"

#include "base/debug.h"
#include "base/fork.h"
#include "base/passing.h"
#include "base/threads.h"
#include "base/wire.h"
#include "gate/gate.h"
#include "lease/meeting.h"
#include "memory/shared.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DOOR UINT64_MAX /* instead of the number of a block */
#define STACK_BYTES (256 * 1024)
#define ASKED_MOST 1024 /* requests for memory that wait for the lease */

/* A request for memory. */
struct asked {
	struct asked *next;
	uint64_t what[2];
	int end;
	bool stays;
};

static atomic_int door = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* no other is taken while it is held */
static pthread_cond_t came = PTHREAD_COND_INITIALIZER;
static struct asked *first, **last = &first;
static unsigned int n_asked;

bool keeper_is(void)
{
	return atomic_load(&door) >= 0;
}

CUresult keeper_meet(int *end)
{
	static const uint8_t anybody[GL_NAME_BYTES];
	const uint64_t what[2] = {DOOR, 0};

	return meeting_ask(anybody, what, end);
}

/* -- memory: with the lease, since it has to be on the device ---------------------------------- */

static struct asked *next(void)
{
	struct asked *asked;

	pthread_mutex_lock(&lock);
	while (!first)
		pthread_cond_wait(&came, &lock);
	asked = first;
	first = asked->next;
	if (!first)
		last = &first;
	n_asked--;
	pthread_mutex_unlock(&lock);
	return asked;
}

static void *serve(void *argument)
{
	(void)argument;
	for (;;) {
		struct asked *asked = next();

		if (gate_enter_for_memory()) {
			close(asked->end);
		} else {
			shared_serve(asked->what, asked->end, asked->stays);
			gate_leave();
		}
		free(asked);
	}
	return NULL;
}

static void serve_later(const uint64_t what[2], int end, bool stays)
{
	struct asked *asked = malloc(sizeof(*asked));
	bool taken;

	if (asked)
		*asked = (struct asked){NULL, {what[0], what[1]}, end, stays};
	pthread_mutex_lock(&lock);
	taken = asked && n_asked < ASKED_MOST;
	if (taken) {
		*last = asked;
		last = &asked->next;
		n_asked++;
		pthread_cond_signal(&came);
	}
	pthread_mutex_unlock(&lock);
	if (taken)
		return;
	close(end);
	free(asked);
}

/* -- the program ------------------------------------------------------------------------------- */

/* If the program does not read, whoever asks sees the end of the connection, and asks again. */
static void pass(int end)
{
	char byte = 0;

	if (!pass_send(atomic_load(&door), &byte, 1, &end, 1))
		debug("the keeper's program takes no connection");
	close(end);
}

void keeper_take(const uint64_t what[2], int end, bool stays)
{
	if (what[0] == DOOR)
		pass(end);
	else if (shared_stays(what[0]))
		shared_serve(what, end, false);
	else
		serve_later(what, end, stays);
}

bool keeper_begin(int program)
{
	if (keeper_is() || !thread_start(serve, STACK_BYTES))
		return false;
	atomic_store(&door, program);
	return true;
}

static void in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&came, NULL);
	first = NULL;
	last = &first;
	n_asked = 0;
	atomic_store(&door, -1);
}
FORK_WATCH(in_child);
