/* claims.c: claims host memory for copies of this process's device memory.
 *
 * The process may have as much on a device as the daemon grants: all that it claims, unless the
 * node has too little host memory for what might then have to be evicted. Claims are rounded up to
 * steps, so that few allocations have to wait for the daemon. While no daemon takes claims nothing
 * is claimed; the next daemon is told anyway how much memory the process has.
 *
 * The daemon believes the claim for a device that it has heard last, and the process the answer
 * that a thread has seen last. So that both are of the same claim, one at a time is under way for
 * each device. Meanwhile other threads wait, and what is freed is not told.
 */
#include "memory/claims.h"

#include "base/debug.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/devices.h"
#include "gate/waiting.h"

#include <string.h>

#define STEPS 64 /* a step is this fraction of what the job may have on the device, */
#define LARGEST_STEP (UINT64_C(256) << 20) /* but no more bytes than this */
#define STEPS_KEPT 4 /* steps that are granted and not used; more are given back */

struct claim {
	struct claim *next;
	struct gl_claim message;
	CUdevice device;
	bool sent, answered;
	bool lost; /* the daemon that it was meant for is gone */
};

static struct lock lock = LOCK(LOCK_CLAIMS);
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* The lock guards all of these. */
static struct claim *claims; /* those for whose answers threads wait */
static struct {
	uint64_t granted, step; /* bytes */
	uint8_t uuid[GL_UUID_BYTES];
	bool has_less; /* the process has freed much, and the daemon has to be told */
} devices[MAX_DEVICES];
static uint64_t last_number;
static bool offered;    /* the connected daemon understands claims */
static bool complained; /* the user has been told why a claim is refused or waits */

static uint64_t rounded(uint64_t bytes, uint64_t step, uint64_t most)
{
	uint64_t up = (bytes + step - 1) / step * step;

	return up < most || most < bytes ? up : most;
}

static struct gl_claim claim_of(const uint8_t uuid[16], uint64_t bytes, uint64_t least)
{
	struct gl_claim message = {.header = message_header(GL_CLAIM, sizeof(message)),
	                           .number = ++last_number,
	                           .bytes = bytes,
	                           .least = least};

	memcpy(message.uuid, uuid, GL_UUID_BYTES);
	return message;
}

/* Is a claim for the device under way? The caller holds the lock. */
static bool claims_for(CUdevice device)
{
	struct claim *claim = claims;

	while (claim && claim->device != device)
		claim = claim->next;
	return claim;
}

/* Sends the claim and waits for the answer, or for the loss of the daemon. The caller holds the
 * lock, which is given up meanwhile. */
static void send_and_wait(struct claim *claim)
{
	struct claim **at = &claims;

	claim->next = claims;
	claims = claim;
	client_wake();
	while (!claim->lost && !claim->answered)
		lock_wait(&lock, &changed);
	while (*at != claim)
		at = &(*at)->next;
	*at = claim->next;
	if (claim->answered && !claim->lost)
		devices[claim->device].granted = claim->message.bytes;
	pthread_cond_broadcast(&changed);
}

CUresult claim_cover(CUdevice device, const uint8_t uuid[16], uint64_t bytes, uint64_t limit)
{
	CUresult result = CUDA_SUCCESS;
	struct claim claim = {.device = device};
	uint64_t step = limit / STEPS;

	lock_take(&lock);
	step = step > LARGEST_STEP ? LARGEST_STEP : step ? step : 1;
	devices[device].step = step;
	memcpy(devices[device].uuid, uuid, GL_UUID_BYTES);
	while (offered && bytes > devices[device].granted && claims_for(device))
		lock_wait(&lock, &changed);
	if (offered && bytes > devices[device].granted) {
		devices[device].has_less = false;
		claim.message = claim_of(uuid, rounded(bytes, step, limit), bytes);
		send_and_wait(&claim);
		if (claim.answered && claim.message.bytes < bytes)
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	lock_give(&lock);
	return result;
}

void claim_freed(CUdevice device, uint64_t bytes)
{
	uint64_t most;
	bool less;

	lock_take(&lock);
	most = bytes + STEPS_KEPT * devices[device].step;
	less = offered && devices[device].granted > most && !claims_for(device);
	if (less) {
		devices[device].granted = bytes + devices[device].step;
		devices[device].has_less = true;
	}
	lock_give(&lock);
	if (less)
		client_wake();
}

/* -- the client thread ------------------------------------------------------------------ */

/* A thread that waits for an answer of a daemon that is gone goes on without one. */
void claims_offered(bool now)
{
	lock_take(&lock);
	offered = now;
	if (!offered) {
		for (int d = 0; d < MAX_DEVICES; d++)
			devices[d].granted = 0, devices[d].has_less = false;
		for (struct claim *claim = claims; claim; claim = claim->next)
			claim->lost = true;
		pthread_cond_broadcast(&changed);
	}
	lock_give(&lock);
}

bool claims_next_message(struct gl_claim *next)
{
	struct claim *claim = NULL;
	bool found = false;

	lock_take(&lock);
	for (int d = 0; offered && !found && d < MAX_DEVICES; d++) {
		if (devices[d].has_less) {
			*next = claim_of(devices[d].uuid, devices[d].granted, 0);
			devices[d].has_less = false;
			found = true;
		}
	}
	claim = offered && !found ? claims : NULL;
	while (claim && (claim->sent || claim->lost))
		claim = claim->next;
	if (claim) {
		claim->sent = true;
		*next = claim->message;
		found = true;
	}
	lock_give(&lock);
	return found;
}

void claims_answer(const struct gl_claimed *answer)
{
	struct claim *claim;
	bool say = false;

	lock_take(&lock);
	for (claim = claims; claim && claim->message.number != answer->number; claim = claim->next)
		;
	if (claim && answer->code != GL_CLAIM_GRANTED) {
		say = !complained;
		complained = true;
	}
	if (claim && answer->code != GL_CLAIM_WAITS) {
		claim->message.bytes = answer->bytes;
		claim->answered = true;
		pthread_cond_broadcast(&changed);
	}
	lock_give(&lock);
	if (say)
		complain("%.*s", (int)sizeof(answer->reason), answer->reason);
}

static void in_child(void)
{
	lock_after_fork(&lock);
	pthread_cond_init(&changed, NULL);
	claims = NULL;
	memset(devices, 0, sizeof(devices));
	offered = false;
}
FORK_WATCH(in_child);
