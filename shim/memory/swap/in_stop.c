/* in_stop.c: swapped memory moves while the program's kernels are stopped. */
#include "memory/swap/in_stop.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/fork.h"
#include "channels/channels.h"
#include "driver/lookup.h"
#include "memory/swap/copier.h"
#include "work/contexts.h"

#define MOST_CHANNELS 32        /* those of two contexts and more; ours are among the first */
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

/* Channels that shall not be frozen. */
struct channel_list {
	struct copy_channel channels[MOST_CHANNELS];
	unsigned int n;
};

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

static bool keep(const struct copier *c, const struct channel_list *list)
{
	channels_keep_copies(device_uuid(c->device), list->channels, list->n);
	return channels_settle(SETTLE_US);
}

static struct channel_list all_channels(const struct copier *c)
{
	struct channel_list all;

	all.n = channels_list_copies(device_uuid(c->device), all.channels, MOST_CHANNELS);
	return all;
}

/* Thaws all, and waits for our copies that a frozen channel has held up. */
static bool thaw(const struct copier *c)
{
	struct channel_list all = all_channels(c);

	return keep(c, &all) && comes(c);
}

/* -- in which channel do our copies go? --------------------------------------------------- */

/* Splits the candidates in two, and leaves in `list` the half that our copy needs. */
static bool halve(struct copier *c, enum way way, struct channel_list *list)
{
	static struct channel_list kept, halves[2];
	unsigned int n = 0;
	bool came;

	kept = all_channels(c);
	halves[0].n = halves[1].n = 0;

	for (unsigned int i = 0; i < list->n; i++) {
		struct channel_list *half = &halves[i < list->n / 2];

		half->channels[half->n++] = list->channels[i];
	}
	for (unsigned int i = 0; i < kept.n; i++) {
		bool frozen = false;

		for (unsigned int k = 0; k < halves[1].n; k++)
			frozen |= kept.channels[i].object == halves[1].channels[k].object &&
			          kept.channels[i].client == halves[1].channels[k].client;
		if (!frozen)
			kept.channels[n++] = kept.channels[i];
	}
	kept.n = n;
	if (!keep(c, &kept) || submit(c, way))
		return false;
	came = comes(c);
	*list = came ? halves[0] : halves[1];
	return came || thaw(c);
}

static bool find_channel(struct copier *c, enum way way)
{
	struct channel_list list = all_channels(c);

	while (list.n > 1)
		if (!halve(c, way, &list))
			return false;
	trials[c->device].of[way] = list.channels[0];
	return list.n == 1;
}

/* -- do our copies come? ---------------------------------------------------------------------- */

static bool tried(struct copier *c)
{
	const struct trial *trial = &trials[c->device];
	struct channel_list ours = {.channels = {trial->of[OUT], trial->of[IN]}, .n = N_WAYS};

	return keep(c, &ours) && !submit(c, OUT) && !submit(c, IN) && comes(c);
}

/* The channels of a stream do not change; where they are not as they were, they are found anew. */
static void try_in(CUcontext context, void *result)
{
	struct copier *c = NULL;
	struct trial *trial;

	for (int d = 0; d < MAX_DEVICES && !c; d++)
		if (copiers[d].context == context && trials[d].context == context)
			c = &copiers[d];
	if (!c)
		return;
	trial = &trials[c->device];
	if (!trial->known)
		trial->known = thaw(c) && find_channel(c, OUT) && find_channel(c, IN);
	if (trial->known && tried(c))
		*(bool *)result = true;
	else
		trial->known = thaw(c) && trial->known;
}

bool swap_movable_in_stop(void)
{
	for (int d = 0; d < MAX_DEVICES; d++) {
		bool movable = !swap_devices[d].asked || !swap_bytes(d);

		if (!movable)
			contexts_with(d, copiers[d].context, try_in, &movable);
		if (!movable)
			return false;
	}
	return true;
}

/* -- what it needs -------------------------------------------------------------------------------
 */

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
		struct copier *c = &copiers[d];

		if (!swap_devices[d].asked || !swap_bytes(d) ||
		    (c->context && trials[d].context == c->context))
			continue;
		c->device = d;
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
