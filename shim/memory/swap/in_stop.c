/* in_stop.c: swapped memory moves while the program's kernels are stopped. */
#include "memory/swap/in_stop.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/fork.h"
#include "channels/channels.h"
#include "driver/lookup.h"
#include "memory/swap/lane.h"
#include "work/contexts.h"

#define MOST_CHANNELS 768       /* of the copy engines of a GPU; a context has 12 */
#define TRIED_BYTES (128 << 10) /* smaller copies to the device go without a copy engine */
#define SETTLE_US 20000
#define COMES_US 2000

enum way { OUT, IN, N_WAYS };

/* Of one device. */
static struct trial {
	CUcontext context; /* for which the rest was made */
	CUdeviceptr bytes; /* on the device, and on the host */
	void *host;
	struct copy_channel of[N_WAYS]; /* the channel of our stream's copies, each way */
	bool known;
} trials[MAX_DEVICES];

static CUresult submit(struct copier *c, enum way way)
{
	const struct trial *trial = &trials[c->device];

	return way == OUT
	           ? DRIVER(cuMemcpyDtoHAsync_v2)(trial->host, trial->bytes, TRIED_BYTES, c->stream)
	           : DRIVER(cuMemcpyHtoDAsync_v2)(trial->bytes, trial->host, TRIED_BYTES,
	                                          c->stream);
}

/* Has all that was submitted to our stream come in time? */
static bool comes(const struct copier *c)
{
	uint64_t until = now_ns() + COMES_US * UINT64_C(1000);
	CUresult result;

	do
		result = REAL(cuStreamQuery)(c->stream);
	while (result == CUDA_ERROR_NOT_READY && now_ns() < until);
	return result == CUDA_SUCCESS;
}

static bool freeze(const struct copier *c, const struct copy_channel *list, unsigned int n,
                   bool listed)
{
	channels_freeze_copies(device_uuid(c->device), list, n, listed);
	channels_renew(STOP_LASTS_NS); /* of many channels this takes a while */
	return channels_settle(SETTLE_US);
}

/* Thaws all, and waits for our copies that a frozen channel has held up. */
static bool thaw(const struct copier *c)
{
	return freeze(c, NULL, 0, true) && comes(c);
}

/* -- in which channel do our copies go? --------------------------------------------------- */

/* Freezes half of those in question, until only one is left. */
static bool find_channel(struct copier *c, enum way way)
{
	static struct copy_channel channels[MOST_CHANNELS];
	struct copy_channel *at = channels;
	unsigned int n = channels_list_copies(device_uuid(c->device), channels, MOST_CHANNELS);

	while (n > 1) {
		unsigned int half = n / 2;

		if (!freeze(c, at, half, true) || submit(c, way))
			return false;
		if (comes(c)) {
			at += half;
			n -= half;
		} else if (thaw(c)) {
			n = half;
		} else {
			return false;
		}
	}
	trials[c->device].of[way] = *at;
	return n == 1;
}

/* -- do our copies come? ---------------------------------------------------------------------- */

static bool tried(struct copier *c)
{
	const struct trial *trial = &trials[c->device];

	return freeze(c, trial->of, N_WAYS, false) && !submit(c, OUT) && !submit(c, IN) && comes(c);
}

/* The channels of a stream do not change. Where our copies do not come, they may have been found
 * wrongly, since another process's copies were in the way: they are found anew at the next stop. */
static void try_in(CUcontext context, void *result)
{
	struct copier *c = NULL;
	struct trial *trial;

	for (int d = 0; d < MAX_DEVICES && !c; d++)
		if (lanes[d].copier.context == context && trials[d].context == context)
			c = &lanes[d].copier;
	if (!c)
		return;
	trial = &trials[c->device];
	if (!trial->known)
		trial->known = thaw(c) && find_channel(c, OUT) && find_channel(c, IN);
	trial->known = trial->known && tried(c);
	if (trial->known)
		*(bool *)result = true;
	else
		thaw(c);
}

bool swap_movable_in_stop(void)
{
	for (int d = 0; d < MAX_DEVICES; d++) {
		bool movable = !lanes[d].asked || !lane_bytes(&lanes[d]);

		if (!movable)
			contexts_with(d, lanes[d].copier.context, try_in, &movable);
		if (!movable)
			return false;
	}
	return true;
}

void swap_stop_forget(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		trials[d].known = false;
}

/* -- what it needs ----------------------------------------------------------------------------- */

static void prepare_in(CUcontext context, void *copier)
{
	struct copier *c = copier;
	struct trial *trial = &trials[c->device];

	if (!copier_prepare(c, context) || trial->context == context)
		return;
	*trial = (struct trial){0};
	if (DRIVER(cuMemAlloc_v2)(&trial->bytes, TRIED_BYTES))
		return;
	if (REAL(cuMemHostAlloc)(&trial->host, TRIED_BYTES, 0)) {
		DRIVER(cuMemFree_v2)(trial->bytes);
		return;
	}
	trial->context = context;
}

void swap_stop_prepare(void)
{
	for (int d = 0; d < MAX_DEVICES; d++) {
		struct copier *c = &lanes[d].copier;

		if (!lanes[d].asked || !lane_bytes(&lanes[d]) ||
		    (c->context && trials[d].context == c->context))
			continue;
		contexts_with(d, c->context, prepare_in, c);
	}
}

/* What the trials of a context needed has ended with it. */
static void context_gone(CUcontext context)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		if (trials[d].context == context)
			trials[d] = (struct trial){0};
}
CONTEXT_WATCH(NULL, context_gone);

static void in_child(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		trials[d] = (struct trial){0};
}
FORK_WATCH(in_child);
