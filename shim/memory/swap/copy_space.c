/* copy_space.c: host memory for copies, made ready before segments are evicted. */
#include "memory/swap/copy_space.h"

#include "base/clock.h"
#include "base/debug.h"
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
static bool has_excess;     /* there is more than `needed` */
static uint64_t needed;
static uint64_t looked_at; /* when these were last looked for, in ns, */
static int64_t look_pause; /* and how long after that it is looked for again */

/* What is beyond all memory there is cannot be needed; nor is what is beyond kept_bytes, after the
 * daemon has asked for less, until it is given up or the daemon expects bytes to leave. */
void copy_space_look(bool idle)
{
	has_excess = false;
	if (!idle)
		return;
	needed = 0;
	for_each_lane(lane)
		needed += lane->asked ? lane_bytes(lane) : 0;
	gives_up = gives_up && (preparing || swap_store->excess(kept_bytes));
	if (gives_up && !preparing && kept_bytes < needed)
		needed = kept_bytes;
	has_excess = swap_store->excess(needed);
}

bool copy_space_has_excess(void)
{
	return has_excess && !captures_exist();
}

static void give_up(CUcontext context, void *until)
{
	(void)context;
	do
		swap_store->trim(needed);
	while (swap_store->excess(needed) && now_ns() < *(uint64_t *)until);
}

void copy_space_give_up_excess(int64_t ns)
{
	uint64_t until = now_ns() + (uint64_t)ns;
	CUstreamCaptureMode mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	bool given = false; /* without a context none can be */

	for_each_lane(lane)
		if (lane->asked && !given)
			given = contexts_with(lane->device, NULL, give_up, &until);
	captures_mode(mode);
	has_excess = given && swap_store->excess(needed);
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

static void prepare_in(CUcontext context, void *answer)
{
	(void)context;
	*(enum store_answer *)answer = swap_store->prepare();
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
