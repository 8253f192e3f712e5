/* shared_parts.c: the messages between two processes that share memory. */
#include "memory/shared_parts.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/passing.h"

#include <poll.h>
#include <string.h>

/* The client thread of the other process answers, and it waits for nothing but the driver. If that
 * process ends, the connection ends. So it does not answer only if it is stopped, or hangs in the
 * driver. */
#define POLL_MS 1000                     /* one poll takes so long at most */
#define COMPLAIN_AFTER_MS 5000           /* when the user is told */
#define ANSWER_MS 60000                  /* when the wait fails */
#define LARGEST_SIZE (UINT64_C(1) << 46) /* bytes of a block */

bool part_send(int end, const struct shared_part *part, const int *files)
{
	return pass_send(end, part, sizeof(*part), files, part->n);
}

/* How many ms one poll adds to the wait: POLL_MS at most, so that the time during which this
 * process is itself stopped, as in a suspended job, does not count. */
static int64_t waited_ms(uint64_t since)
{
	int64_t ms = (int64_t)((now_ns() - since) / 1000000);

	return ms < POLL_MS ? ms : POLL_MS;
}

static void say_silent(bool again)
{
	if (again)
		complain("this process waits for memory of its chain, whose keeper "
		         "(gpu-lease-chain) does not answer: is the keeper's job suspended?");
	else
		complain("this process waits to open memory of another process of its job (CUDA "
		         "IPC), which does not answer: is that process stopped? The open fails "
		         "after %d s",
		         ANSWER_MS / 1000);
}

/* CUDA_ERROR_MAP_FAILED: the other process does not answer. A signal does not end the wait. */
static CUresult wait_for_part(int end, bool again)
{
	struct pollfd readable = {end, POLLIN, 0};
	bool said = false;

	for (int64_t waited = 0; again || waited < ANSWER_MS;) {
		uint64_t since = now_ns();

		if (poll(&readable, 1, POLL_MS) > 0)
			return CUDA_SUCCESS;
		waited += waited_ms(since);
		if (waited < COMPLAIN_AFTER_MS || said)
			continue;
		said = true;
		say_silent(again);
	}
	complain(
	    "memory of another process of the job could not be opened (CUDA IPC): that process "
	    "has not answered for %d s; let it run, and open the memory again",
	    ANSWER_MS / 1000);
	return CUDA_ERROR_MAP_FAILED;
}

CUresult part_receive(int end, bool again, struct shared_part *part, int files[SHARED_AT_ONCE],
                      size_t *n)
{
	CUresult result = wait_for_part(end, again);

	*n = 0;
	if (result)
		return result;
	return pass_receive(end, part, sizeof(*part), files, n) == (ssize_t)sizeof(*part)
	           ? CUDA_SUCCESS
	           : CUDA_ERROR_INVALID_VALUE;
}

bool part_follows(const struct shared_part *part, const struct shared_part *before)
{
	return !memcmp(part->mark, SHARED_PART_MARK, sizeof(part->mark)) && !part->status &&
	       part->size && part->size <= LARGEST_SIZE && part->piece &&
	       part->piece <= part->size && part->n && part->n <= SHARED_AT_ONCE &&
	       part->total == (part->size - 1) / part->piece + 1 &&
	       part->first == before->first + before->n && part->n <= part->total - part->first &&
	       (!before->total || (part->total == before->total && part->size == before->size &&
	                           part->piece == before->piece));
}
