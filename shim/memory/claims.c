/* claims.c: claims host memory for copies of this process's device memory.
 *
 * The process may have as much on a device as the daemon grants: all that it claims, unless the
 * node has too little host memory for what might then have to be evicted. Claims are rounded up to
 * steps, so that few allocations have to wait for the daemon. While no daemon takes claims nothing
 * is claimed; the next daemon is told anyway how much memory the process has. But a claim that a
 * daemon has let wait is repeated to the next one.
 *
 * The daemon believes the claim for a device that it has heard last, and the process the answer
 * that a thread has seen last. So that both are of the same claim, one at a time is under way for
 * each device, and other threads wait meanwhile. If much is freed by then, less is claimed in its
 * place: the claim may be waiting for memory that the process itself no longer needs.
 */
#include "memory/claims.h"

#include "base/debug.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/devices.h"
#include "gate/waiting.h"
#include "memory/used.h"

#include <string.h>

#define STEPS 64 /* a step is this fraction of what the job may have on the device, */
#define LARGEST_STEP (UINT64_C(256) << 20) /* but no more bytes than this */
#define STEPS_KEPT 4 /* steps that are granted and not used; more are given back */

struct claim {
	struct claim *next;
	struct gl_claim message;
	CUdevice device;
	uint64_t limit; /* bytes that the job may have there */
	bool sent, answered;
	bool waits; /* the daemon has said that it has to wait */
	bool lost;  /* the daemon that it was meant for is gone, or the next one takes no claims */
};

static struct lock lock = LOCK(LOCK_CLAIMS);
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* The lock guards all of these. */
static struct claim *claims; /* those for whose answers threads wait */
static struct {
	uint64_t granted, step; /* bytes */
	bool has_less;          /* the process has freed much, and the daemon has to be told */
} devices[MAX_DEVICES];
static uint64_t last_number;
static bool offered;    /* the connected daemon understands claims */
static bool complained; /* the user has been told why a claim is refused or waits */

static uint64_t rounded(uint64_t bytes, uint64_t step, uint64_t most)
{
	uint64_t up = (bytes + step - 1) / step * step;

	return up < most || most < bytes ? up : most;
}

/* Of which GPU it is, is written when it is sent: the process may move to another one before. */
static struct gl_claim claim_of(uint64_t bytes, uint64_t least)
{
	return (struct gl_claim){.header = message_header(GL_CLAIM, sizeof(struct gl_claim)),
	                         .number = ++last_number,
	                         .bytes = bytes,
	                         .least = least};
}

/* The claim for the device that is under way, or NULL. The caller holds the lock. */
static struct claim *claim_for(CUdevice device)
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

/* Is more used of the device than the daemon has granted? The caller holds the lock. */
static bool lacks(CUdevice device)
{
	return offered && memory_used(device) > devices[device].granted;
}

CUresult claim_cover(CUdevice device, uint64_t limit)
{
	CUresult result = CUDA_SUCCESS;
	struct claim claim = {.device = device, .limit = limit};
	uint64_t step = limit / STEPS, used;

	lock_take(&lock);
	step = step > LARGEST_STEP ? LARGEST_STEP : step ? step : 1;
	devices[device].step = step;
	while (lacks(device) && claim_for(device))
		lock_wait(&lock, &changed);
	if (lacks(device)) {
		devices[device].has_less = false;
		used = memory_used(device);
		claim.message = claim_of(rounded(used, step, limit), used);
		send_and_wait(&claim);
		if (claim.answered && claim.message.bytes < claim.message.least)
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	lock_give(&lock);
	return result;
}

/* Claims less in place of the claim that is under way. Until that is answered nobody may use more.
 * Returns false if it would be hardly less. */
static bool claim_less(struct claim *claim, uint64_t used)
{
	uint64_t step = devices[claim->device].step, bytes = rounded(used, step, claim->limit);

	if (claim->answered || claim->lost || claim->message.least <= used + step)
		return false;
	claim->message = claim_of(bytes, used);
	claim->sent = false;
	if (devices[claim->device].granted > bytes)
		devices[claim->device].granted = bytes;
	return true;
}

static bool give_back(CUdevice device, uint64_t used)
{
	uint64_t step = devices[device].step;

	if (devices[device].granted <= used + STEPS_KEPT * step)
		return false;
	devices[device].granted = used + step;
	devices[device].has_less = true;
	return true;
}

void claim_freed(CUdevice device)
{
	struct claim *claim;
	uint64_t used;
	bool less;

	lock_take(&lock);
	used = memory_used(device);
	claim = claim_for(device);
	less = claim ? claim_less(claim, used) : offered && give_back(device, used);
	lock_give(&lock);
	if (less)
		client_wake();
}

/* -- the client thread ------------------------------------------------------------------ */

/* Nothing is granted any more, and threads go on without an answer; with waiting_too false only
 * those whose claims the daemon has not told to wait. The caller holds the lock. */
static void lose_daemon(bool waiting_too)
{
	offered = false;
	for (int d = 0; d < MAX_DEVICES; d++)
		devices[d].granted = 0, devices[d].has_less = false;
	for (struct claim *claim = claims; claim; claim = claim->next) {
		claim->sent = false;
		claim->lost |= waiting_too || !claim->waits || claim->answered;
	}
	pthread_cond_broadcast(&changed);
}

void claims_offered(bool now)
{
	lock_take(&lock);
	offered = now;
	if (!offered)
		lose_daemon(true);
	lock_give(&lock);
}

/* A claim that waits has nothing to go on with: the next daemon has what this one had. */
void claims_forget_daemon(void)
{
	lock_take(&lock);
	lose_daemon(false);
	lock_give(&lock);
}

bool claims_next_message(struct gl_claim *next)
{
	struct claim *claim = NULL;
	CUdevice device = -1;

	lock_take(&lock);
	for (int d = 0; offered && device < 0 && d < MAX_DEVICES; d++) {
		if (devices[d].has_less) {
			*next = claim_of(devices[d].granted, 0);
			devices[d].has_less = false;
			device = d;
		}
	}
	claim = offered && device < 0 ? claims : NULL;
	while (claim && (claim->sent || claim->lost))
		claim = claim->next;
	if (claim) {
		claim->sent = true;
		*next = claim->message;
		device = claim->device;
	}
	if (device >= 0)
		memcpy(next->uuid, device_uuid(device), GL_UUID_BYTES);
	lock_give(&lock);
	return device >= 0;
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
	if (claim && answer->code == GL_CLAIM_WAITS) {
		claim->waits = true;
	} else if (claim) {
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
