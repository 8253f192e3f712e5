/* copy_space.c: host memory for copies, made ready before segments are evicted. */
#include "memory/swap/copy_space.h"

#include "base/clock.h"
#include "base/debug.h"
#include "channels/channels.h"
#include "memory/swap/evict.h"
#include "memory/swap/lane.h"
#include "memory/swap/moves.h"
#include "work/captures.h"
#include "work/contexts.h"

/* Between two steps, so that the client thread hears the daemon. */
#define PREPARE_PAUSE_NS INT64_C(2000000)
/* While other threads, or the daemon, are at work. */
#define OTHERS_PAUSE_NS INT64_C(20000000)
/* Between two looks whether what stays on a device since it could not be copied can be: the first
 * pause, and the longest. Pauses grow until nothing has stayed for longer than that. */
#define LOOK_NS INT64_C(1000000000)
#define LOOK_MOST_NS (32 * LOOK_NS)

/* Used by the client thread only. */
static bool preparing;      /* copy_space_prepare() may have something to do */
static bool gives_up;       /* the last GL_AHEAD asked for less than the one before */
static uint64_t kept_bytes; /* what the last GL_AHEAD asked for */
static uint64_t looked_at;  /* when these were last looked for, in ns, */
static int64_t look_pause;  /* and how long after that it is looked for again */

static void trim_to(CUcontext context, void *keep)
{
	(void)context;
	while (swap_store->excess(*(uint64_t *)keep))
		swap_store->trim(*(uint64_t *)keep);
}

void copy_space_trim(void)
{
	uint64_t keep = 0;

	preparing |= gives_up; /* a stop may have put it off */
	for_each_lane(lane)
		keep += lane->asked ? lane_bytes(lane) : 0;
	if (!swap_store->excess(keep))
		return;
	for_each_lane(lane)
		if (lane->asked && contexts_with(lane->device, NULL, trim_to, &keep))
			break;
}

void copy_space_expect(const struct gl_memory *amounts)
{
	uint64_t bytes = lanes_named(amounts, moves_copies_needed);

	swap_store->expect(bytes);
	preparing = bytes > 0;
	gives_up = false;
}

static uint64_t of_any(struct lane *lane, uint64_t bytes)
{
	(void)lane;
	return bytes;
}

void copy_space_keep(const struct gl_memory *amounts)
{
	uint64_t bytes = lanes_named(amounts, of_any);

	debug("the daemon wants %llu KiB of host memory kept ready",
	      (unsigned long long)bytes >> 10);
	gives_up = bytes < kept_bytes;
	kept_bytes = bytes;
	swap_store->keep_total(bytes);
	preparing = true;
}

/* Makes some memory ready; or, if all is, gives some up. Nobody waits for either. None is given up
 * while work stands still in mid-kernel, see step() in mover.c. */
static void prepare_in(CUcontext context, void *out)
{
	enum store_answer *answer = out;

	(void)context;
	*answer = swap_store->prepare();
	if (*answer != STORE_NONE || !gives_up || channels_stop_phase() != STOP_NONE)
		return;
	gives_up = swap_store->excess(kept_bytes);
	if (gives_up) {
		swap_store->trim(kept_bytes);
		*answer = STORE_READY;
	}
}

/* Pinning needs a context. It must not break a capture of the program, hence the relaxed mode. */
static int64_t prepare(void)
{
	enum store_answer answer = STORE_NONE;
	CUstreamCaptureMode mode;

	if (!preparing)
		return -1;
	mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	for_each_lane(lane)
		if (lane->asked && answer == STORE_NONE)
			contexts_with(lane->device, NULL, prepare_in, &answer);
	captures_mode(mode);
	preparing = answer != STORE_NONE;
	if (!preparing)
		return -1;
	return answer == STORE_READY ? PREPARE_PAUSE_NS : OTHERS_PAUSE_NS;
}

/* There may be a stream, and host memory, by now for what stays on a lane: it is made ready, and
 * what it is ready for may leave. Other jobs may wait for that however long the program does
 * nothing. */
static void look_again(void)
{
	uint64_t bytes = 0, now = now_ns();
	CUstreamCaptureMode mode;

	if (now - looked_at > 2 * (uint64_t)LOOK_MOST_NS)
		look_pause = 0;
	if (now - looked_at < (uint64_t)look_pause)
		return;
	mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	for_each_lane(lane) {
		uint64_t staying = lane->asked ? evict_unfix_ready(lane) : 0;

		lane->stays = staying > 0;
		bytes += staying;
	}
	captures_mode(mode);
	looked_at = now;
	look_pause = !look_pause ? LOOK_NS : 2 * look_pause;
	if (look_pause > LOOK_MOST_NS)
		look_pause = LOOK_MOST_NS;
	if (!bytes)
		return;
	swap_store->expect(bytes);
	preparing = true;
}

static bool some_stays(void)
{
	for_each_lane(lane)
		if (lane->stays)
			return true;
	return false;
}

int64_t copy_space_prepare(void)
{
	int64_t pause;

	if (some_stays())
		look_again();
	pause = prepare();
	return pause < 0 && some_stays() ? look_pause : pause;
}
