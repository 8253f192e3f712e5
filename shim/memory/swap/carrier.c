/* carrier.c: segments leave straight for the GPU to which the job moves, and come back there. */
#include "memory/swap/carrier.h"

#include "base/debug.h"
#include "base/descriptor.h"
#include "base/fork.h"
#include "base/locks.h"
#include "base/passing.h"
#include "driver/lookup.h"
#include "memory/carried.h"
#include "memory/changes.h"
#include "memory/store/chunks.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* The copy of a segment in memory of a carrier's: it has no parts on the host. */
struct carried {
	struct copy copy;
	struct carried *next;
	struct descriptor file;
};

static struct carried *carried; /* all of them; under chunks_lock */

/* Used by the client thread only. */
static struct descriptor carrier = NO_DESCRIPTOR;
static bool takes;    /* until the move is over, or the carrier has refused */
static bool ends;     /* the carrier is not needed once all is back */
static bool stranded; /* no daemon knows that one is needed */
static bool awaited;  /* the daemon has been told so: the next one brings memory back, no more */
static struct transfer asked[CARRIER_DEPTH];
static unsigned int first, n_asked;

/* -- copies ------------------------------------------------------------------------------ */

/* Any thread that frees memory. */
static void give(struct copy *copy)
{
	struct carried *one = (struct carried *)copy, **at = &carried;

	lock_take(&chunks_lock);
	while (*at != one)
		at = &(*at)->next;
	*at = one->next;
	lock_give(&chunks_lock);
	descriptor_close(&one->file);
	free(one);
	memory_changed();
}

static void pin(const struct part *part)
{
	(void)part;
}

static const struct store carried_store = {.give = give, .pin = pin};

/* Returns NULL if the host is out of memory, or if what descriptors are left are for the program,
 * and for the driver, which opens some when it restores the process; the file is closed then. */
static struct copy *new_copy(int file)
{
	struct carried *one = calloc(1, sizeof(*one));
	struct descriptor kept = descriptor_keep(file);

	if (!one || !descriptor_is_high(&kept)) {
		descriptor_close(&kept);
		free(one);
		return NULL;
	}
	one->copy.store = &carried_store;
	one->file = kept;
	lock_take(&chunks_lock);
	one->next = carried;
	carried = one;
	lock_give(&chunks_lock);
	return &one->copy;
}

static bool any_carried(void)
{
	bool any;

	lock_take(&chunks_lock);
	any = carried;
	lock_give(&chunks_lock);
	return any;
}

bool carrier_has(const struct segment *segment)
{
	return segment->copy && segment->copy->store == &carried_store;
}

/* -- the carrier --------------------------------------------------------------------------- */

static void lose(void)
{
	debug("the carrier has ended");
	descriptor_close(&carrier);
	takes = false;
	stranded = true;
}

bool carrier_is_there(void)
{
	return carrier.number >= 0;
}

bool carrier_takes(const struct segment *segment)
{
	return takes && segment->block->lane->exportable && !segment->block->prop;
}

unsigned int carrier_busy(void)
{
	return n_asked;
}

void carrier_end_if_done(void)
{
	if (ends && !n_asked && !any_carried())
		descriptor_close(&carrier);
}

void carried_meet(int socket)
{
	if (n_asked || socket < 0) { /* the one before has not answered yet, or this one is lost */
		if (socket >= 0)
			close(socket);
		stranded = true;
		return;
	}
	descriptor_close(&carrier);
	carrier = descriptor_keep(socket);
	ends = awaited || any_carried(); /* the one that has taken it away has ended */
	takes = carrier_is_there() && !ends;
	stranded = awaited = false;
	debug("a carrier %s", ends ? "brings memory back" : "takes memory to the other GPU");
	carrier_end_if_done();
}

void carried_move_ends(void)
{
	takes = false;
	ends = true;
	carrier_end_if_done();
	memory_changed();
}

bool carrier_brings_back(void)
{
	return ends && any_carried();
}

void carried_forget_daemon(void)
{
	stranded = true;
	awaited = false;
}

/* It says nothing without a request, so there is something to read only when it has ended. */
static bool has_ended(void)
{
	char byte;

	return carrier_is_there() && !n_asked &&
	       recv(descriptor_number(&carrier), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

bool carried_is_stranded(void)
{
	bool is;

	if (has_ended())
		lose();
	is = stranded && !carrier_is_there() && any_carried();
	stranded = stranded && carrier_is_there();
	awaited |= is;
	return is;
}

/* -- requests -------------------------------------------------------------------------------- */

/* Returns 0, or an error of errno.h. */
static int send_request(const struct segment *segment, bool out, int file)
{
	struct gl_carry request = {.what = out ? GL_CARRY_AWAY : GL_CARRY_BACK,
	                           .bytes = segment->size};
	const struct carried *copy = (const struct carried *)segment->copy;
	int files[2] = {file, out ? -1 : descriptor_number(&copy->file)};

	return pass_send(descriptor_number(&carrier), &request, sizeof(request), files, out ? 1 : 2)
	           ? 0
	           : errno;
}

enum carrier_answer carrier_ask(struct segment *segment, bool out)
{
	int file, error;

	if (!out && descriptor_number(&((const struct carried *)segment->copy)->file) < 0)
		return CARRIER_LOST;
	if (!carrier_is_there() || (out && !carrier_takes(segment)))
		return CARRIER_NONE;
	if (n_asked == CARRIER_DEPTH)
		return CARRIER_LATER;
	if (DRIVER(cuMemExportToShareableHandle)(&file, segment->handle,
	                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))
		return CARRIER_NONE;
	error = send_request(segment, out, file);
	close(file);
	if ((error == EAGAIN || error == ETOOMANYREFS) && n_asked)
		return CARRIER_LATER;
	if (error) {
		lose();
		return CARRIER_NONE;
	}
	asked[(first + n_asked++) % CARRIER_DEPTH] =
	    (struct transfer){.segment = segment, .out = out};
	return CARRIER_BEGUN;
}

/* An answer; *file: the memory that came with it, or -1. CUDA_ERROR_NOT_READY: there is none. */
static CUresult receive(int *file)
{
	struct gl_carried answer;
	int files[PASS_MOST], end = descriptor_number(&carrier);
	size_t n = 0;
	ssize_t got = end < 0 ? 0 : pass_receive(end, &answer, sizeof(answer), files, &n);

	while (n > 1)
		close(files[--n]);
	*file = n ? files[0] : -1;
	if (got == sizeof(answer) && !answer.failed)
		return CUDA_SUCCESS;
	if (got == sizeof(answer))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return CUDA_ERROR_NOT_READY;
	if (carrier_is_there())
		lose();
	return CUDA_ERROR_OPERATING_SYSTEM;
}

bool carrier_take(struct transfer *out, struct copy **copy)
{
	CUresult result;
	int file;

	if (!n_asked)
		return false;
	result = receive(&file);
	if (result == CUDA_ERROR_NOT_READY)
		return false;
	*out = asked[first];
	first = (first + 1) % CARRIER_DEPTH;
	n_asked--;
	*copy = NULL;
	if (!result && out->out && file >= 0)
		*copy = new_copy(file);
	else if (file >= 0)
		close(file);
	if (!result && out->out && !*copy)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result)
		takes = false;
	out->result = result;
	return true;
}

/* The parent has the memory; a child that had it open too would keep it. */
static void in_child(void)
{
	for (struct carried *one = carried; one; one = one->next)
		descriptor_close(&one->file);
	carried = NULL;
	descriptor_close(&carrier);
	takes = ends = stranded = awaited = false;
	n_asked = 0;
}
FORK_WATCH(in_child);
