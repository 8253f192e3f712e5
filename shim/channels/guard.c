/* guard.c: the thread that makes the channel groups run as they are asked to.
 *
 * What is wanted stands here, what is stands in the tables (groups.c). The guard compares the two
 * whenever something has changed, and makes them equal by calls of the kernel's module. No lock is
 * held during a call, which may take a millisecond, and for ever if the module hangs.
 */
#include "channels/channels.h"
#include "channels/groups.h"
#include "channels/kernel.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/fork.h"
#include "base/futex.h"
#include "base/threads.h"
#include "driver/lookup.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define STACK_BYTES (64 * 1024)
#define MOST_GPUS 16
#define MOST_FAILURES 3   /* in a row; then groups count as not controllable */
#define RETRY_NS (5 * MS) /* until a call that has failed is made again */
#define NO_END UINT64_MAX
#define FAILED 1             /* a stop that has ended by itself */
#define LEAST_DUTY 100       /* per mille, while no daemon is there or heard that could end it */
#define STUCK_NS (100 * MS)  /* a round of the client thread that takes longer may need the GPU */
#define KEPT_NS (30000 * MS) /* how long what a daemon wanted is kept without it */
#define SHORTEST_US 50       /* no slice becomes shorter by being divided */
#define HANGS_NS (100 * MS)  /* a call that takes longer may never return */

/* -- what is wanted: changed with LOCK_CHANNELS held -------------------------------------- */

static struct gpu {
	uint8_t uuid[GPU_UUID_BYTES];
	bool used;
	uint64_t slice_us;  /* 0: as made */
	unsigned int parts; /* of the slice: groups that have work; 0 as 1 */
	struct duty duty;
} gpus[MOST_GPUS];
static atomic_bool heeded;           /* duties: while the process may work */
static _Atomic uint64_t round_began; /* of the client thread; 0: it waits for an event */
static uint64_t forget_at; /* when all of that is forgotten, in ns; 0: the daemon is there */
static _Atomic uint64_t stop_until; /* when the stop ends, in ns; 0: there is none, or FAILED */

/* -- what is --------------------------------------------------------------------------------- */

static atomic_uint asked, done; /* numbers of requests */
static _Atomic(enum channels_state) state;
static char reason[160];
static unsigned int failures;
static _Atomic uint64_t call_began; /* when the call began that the guard is in; 0: it is in none */
static atomic_uint hung;     /* stops in vain, one after the other, with no call that returned */
static bool retry;           /* of the guard: a call has failed since it began to look */
static atomic_bool checks;   /* slices are to be looked at */
static unsigned int meddled; /* looks, one after the other, at which others were found than set */
static atomic_uint events;   /* counts what the guard has to look at */
static atomic_bool runs;     /* the guard has been started */
static atomic_bool any;      /* the process has had a group */

static void wake_guard(void)
{
	atomic_fetch_add(&events, 1);
	if (atomic_load(&runs))
		futex_wake_all(&events);
}

static void note_change(void)
{
	atomic_store(&any, true);
	wake_guard();
}
GROUP_WATCH(note_change);
DRIVER_WATCH(kernel_watch);

static void ask(void)
{
	atomic_fetch_add(&asked, 1);
	wake_guard();
}

static void wait_for_events(unsigned int seen, uint64_t ns)
{
	struct timespec t = {(time_t)(ns / (1000 * MS)), (long)(ns % (1000 * MS))};

	futex_wait(&events, seen, ns == NO_END ? NULL : &t);
}

/* -- the state -------------------------------------------------------------------------------- */

static void tell_state(void)
{
	for_each_watch(channels_watches, watch) (*watch)();
}

/* Any thread may refuse; the first reason stays. */
static void refuse(const char *why)
{
	bool first;

	groups_take();
	first = atomic_load(&state) != CHANNELS_REFUSED;
	if (first) {
		snprintf(reason, sizeof(reason), "%s", why);
		atomic_store(&state, CHANNELS_REFUSED);
	}
	groups_give();
	if (!first)
		return;
	debug("channel groups cannot be controlled: %s", reason);
	tell_state();
}

static void refuse_call(const char *what, uint32_t status)
{
	char why[sizeof(reason)];

	if ((status & RM_SYSTEM) == RM_SYSTEM)
		snprintf(why, sizeof(why), "the system refuses %s (errno %d)", what,
		         (int)(status & ~RM_SYSTEM));
	else
		snprintf(why, sizeof(why), "the driver refuses %s (status 0x%x)", what,
		         (unsigned int)status);
	refuse(why);
}

/* A call has failed, and is made again. Once may be chance: the group may have gone. */
static void note_failure(const char *what, uint32_t status)
{
	debug("%s failed: 0x%x", what, (unsigned int)status);
	retry = true;
	if (++failures == MOST_FAILURES)
		refuse_call(what, status);
}

/* -- single calls ------------------------------------------------------------------------------ */

static uint32_t call(int fd, uint32_t client, uint32_t object, uint32_t command, void *parameters,
                     size_t size)
{
	struct rm_control control = {.client = client,
	                             .object = object,
	                             .command = command,
	                             .parameters = (uint64_t)(uintptr_t)parameters,
	                             .size = (uint32_t)size};
	uint32_t status;

	atomic_store(&call_began, now_ns());
	status = kernel_control(fd, &control);
	atomic_store(&call_began, 0);
	atomic_store(&hung, 0);
	return status;
}

/* Learns the UUID of one more GPU. Returns false if there is none to learn, or if that has failed.
 */
static bool learn_uuid(void)
{
	struct rm_gid gid = {.flags = RM_GID_BINARY};
	struct groups *all = groups_take();
	struct subdevice of = {0}, *place;
	uint32_t status;

	for (size_t i = 0; i < MOST_SUBDEVICES && !of.object; i++)
		if (all->subdevices[i].object && !all->subdevices[i].known)
			of = all->subdevices[i];
	groups_give();
	if (!of.object)
		return false;
	status = call(of.fd, of.client, of.object, RM_GET_GID, &gid, sizeof(gid));
	if (status || gid.length != GPU_UUID_BYTES) {
		note_failure("to tell which GPU it is", status);
		return false;
	}
	all = groups_take();
	place = subdevice_find(all, of.client, of.object);
	if (place) {
		place->known = true;
		memcpy(place->uuid, gid.data, GPU_UUID_BYTES);
	}
	groups_give();
	return true;
}

/* Can groups be controlled? The answer to a question is checked. */
static void ask_group(const struct group *of)
{
	uint64_t us = 0;
	uint32_t status = call(of->fd, of->client, of->object, RM_GET_SLICE, &us, sizeof(us));
	enum channels_state none = CHANNELS_NONE;

	if (status)
		refuse_call("to tell time slices", status);
	else if (!us || (of->slice_us && us != of->slice_us))
		refuse("the driver tells other time slices than its library has set");
	else if (atomic_compare_exchange_strong(&state, &none, CHANNELS_CONTROLLED))
		tell_state();
}

/* Is something not known that a stop would need? Asks one of the groups that the library has put to
 * work. */
static void ask_once(void)
{
	struct groups *all = groups_take();
	struct group of = {0};
	bool overflow = all->overflow, unknown = false;
	char why[sizeof(reason)];

	for (size_t i = 0; i < MOST_GROUPS; i++) {
		if (all->groups[i].engine != RM_ENGINE_COMPUTE || !all->groups[i].scheduled)
			continue;
		unknown |= !subdevice_of(all, &all->groups[i]);
		of = all->groups[i];
	}
	groups_give();
	if (overflow) {
		snprintf(why, sizeof(why), "the process has too many contexts (more than %d)",
		         MOST_CONTEXTS);
		refuse(why);
	} else if (unknown) {
		refuse("the driver's library does not say which GPU a channel group is of");
	} else if (of.object && atomic_load(&state) == CHANNELS_NONE) {
		ask_group(&of);
	}
}

/* -- what each group and channel shall do ------------------------------------------------------ */

/* What is wanted of the group's GPU; NULL: nothing special, or it is not known which GPU it is. */
static const struct gpu *gpu_of(struct groups *all, const struct group *group)
{
	const struct subdevice *subdevice = subdevice_of(all, group);

	for (size_t i = 0; subdevice && subdevice->known && i < MOST_GPUS; i++)
		if (gpus[i].used && !memcmp(gpus[i].uuid, subdevice->uuid, GPU_UUID_BYTES))
			return &gpus[i];
	return NULL;
}

/* It does not end because its time has come, but because fail_stop() says so: until then it can be
 * renewed. */
static bool stop_wanted(void)
{
	return atomic_load(&stop_until) > FAILED;
}

/* A thousandth of a period, in ns. */
static uint64_t unit_of(const struct gpu *gpu)
{
	return gpu->duty.period_ms * (MS / 1000);
}

/* How long ago groups of this GPU began to run. */
static uint64_t phase_of(const struct gpu *gpu, uint64_t now)
{
	uint64_t unit = unit_of(gpu);

	return (now + unit * (1000 - gpu->duty.begins)) % (unit * 1000);
}

/* The client thread may be in the driver, waiting for a thread of the program that waits there for
 * the GPU. Then it does not hear that a duty ends, so one of next to nothing is raised. */
static bool is_stuck(uint64_t now)
{
	uint64_t began = atomic_load(&round_began);

	return began && now > began + STUCK_NS;
}

/* How long groups of this GPU run in each period. */
static uint64_t runs_of(const struct gpu *gpu, uint64_t now)
{
	uint16_t permille = gpu->duty.permille;

	if (permille < LEAST_DUTY && is_stuck(now))
		permille = LEAST_DUTY;
	return unit_of(gpu) * permille;
}

/* Is this the part of the period in which they do not run? */
static bool pauses(const struct gpu *gpu, uint64_t now)
{
	return gpu && atomic_load(&heeded) && phase_of(gpu, now) >= runs_of(gpu, now);
}

static bool off_wanted(struct groups *all, const struct channel *channel, uint64_t now)
{
	const struct group *group = group_find(all, channel->client, channel->group);
	const struct gpu *gpu;

	if (!group)
		return channel->off;
	gpu = gpu_of(all, group);
	if (group->engine == RM_ENGINE_COMPUTE)
		return stop_wanted() || pauses(gpu, now);
	if (stop_wanted())
		return channel->frozen;
	return gpu && gpu->duty.copies && pauses(gpu, now);
}

/* -- making it so ------------------------------------------------------------------------------ */

/* One call that takes channels of a GPU off, or puts them back. unknown: there are such channels of
 * which it is not known at which GPU. */
struct change {
	struct subdevice at;
	struct rm_disable list;
	bool unknown;
};

static void add_to_change(struct groups *all, struct change *change, const struct channel *channel,
                          uint64_t now)
{
	const struct group *group = group_find(all, channel->client, channel->group);
	const struct subdevice *at = group ? subdevice_of(all, group) : NULL;
	bool off = off_wanted(all, channel, now);

	if (off == channel->off || change->list.n == RM_LISTED)
		return;
	change->unknown |= !at;
	if (!at)
		return;
	if (!change->list.n) {
		change->at = *at;
		change->list.disable = off;
	}
	if (at->object != change->at.object || at->client != change->at.client ||
	    off != change->list.disable)
		return;
	change->list.clients[change->list.n] = channel->client;
	change->list.channels[change->list.n++] = channel->object;
}

/* Returns false if all is as it shall be. */
static bool next_change(struct change *change)
{
	struct groups *all = groups_take();
	uint64_t now = now_ns();

	change->list = (struct rm_disable){0};
	change->unknown = false;
	for (size_t i = 0; i < MOST_CHANNELS; i++)
		if (all->channels[i].object)
			add_to_change(all, change, &all->channels[i], now);
	groups_give();
	return change->list.n;
}

static void note_changed(const struct change *change)
{
	struct groups *all = groups_take();

	for (uint32_t i = 0; i < change->list.n; i++) {
		struct channel *channel =
		    channel_find(all, change->list.clients[i], change->list.channels[i]);

		if (channel)
			channel->off = change->list.disable;
	}
	groups_give();
}

/* A call that took channels off has failed: whatever it has done is undone. */
static void put_back(struct change *change)
{
	change->list.disable = 0;
	call(change->at.fd, change->at.client, change->at.object, RM_DISABLE_CHANNELS,
	     &change->list, sizeof(change->list));
}

/* Takes channels off and puts them back. Returns false if a call has failed, or for some there is
 * none. */
static bool change_all(void)
{
	static struct change change; /* of the guard */

	while (next_change(&change)) {
		uint32_t status = call(change.at.fd, change.at.client, change.at.object,
		                       RM_DISABLE_CHANNELS, &change.list, sizeof(change.list));

		if (status) {
			note_failure("to take channels off the GPU", status);
			put_back(&change);
			return false;
		}
		failures = 0;
		note_changed(&change);
	}
	return !change.unknown;
}

static uint64_t slice_of(const struct gpu *gpu, const struct group *group)
{
	uint64_t whole = gpu ? gpu->slice_us : 0, part, least;

	if (!whole)
		return group->made_us;
	part = whole / (gpu->parts ? gpu->parts : 1);
	least = whole < SHORTEST_US ? whole : SHORTEST_US;
	return part > least ? part : least;
}

/* Sets the slice of one group that has another one than is wanted. Returns false if there is none,
 * or if that has failed. */
static bool set_slice(void)
{
	struct groups *all = groups_take();
	struct group of = {0}, *place;
	uint64_t us = 0;
	uint32_t status;

	for (size_t i = 0; i < MOST_GROUPS && !of.object; i++) {
		const struct group *group = &all->groups[i];
		const struct gpu *gpu = gpu_of(all, group);

		if (group->engine != RM_ENGINE_COMPUTE || !group->client || !group->made_us)
			continue;
		us = slice_of(gpu, group);
		if (us != group->slice_us)
			of = *group;
	}
	groups_give();
	if (!of.object)
		return false;
	status = call(of.fd, of.client, of.object, RM_SET_SLICE, &us, sizeof(us));
	if (status) {
		note_failure("to set a time slice", status);
		return false;
	}
	failures = 0;
	all = groups_take();
	place = group_find(all, of.client, of.object);
	if (place)
		place->slice_us = us;
	groups_give();
	return true;
}

/* The slice of the group in this place is another one than was set: notes which. */
static bool is_other(size_t i)
{
	struct groups *all = groups_take();
	struct group of = all->groups[i], *place;
	uint64_t us = 0;
	bool other;

	groups_give();
	if (of.engine != RM_ENGINE_COMPUTE || !of.slice_us ||
	    call(of.fd, of.client, of.object, RM_GET_SLICE, &us, sizeof(us)) || us == of.slice_us)
		return false;
	all = groups_take();
	place = group_find(all, of.client, of.object);
	other = place && place->slice_us == of.slice_us; /* else the library has just set it */
	if (other)
		place->slice_us = us;
	groups_give();
	return other;
}

/* A program can set slices by calls of its own. They are set back, but it may go on doing so. */
static void check_slices(void)
{
	bool other = false;

	for (size_t i = 0; i < MOST_GROUPS; i++)
		other |= is_other(i);
	meddled = other ? meddled + 1 : 0;
	if (meddled == MOST_FAILURES)
		refuse("the program sets its time slices itself");
}

/* When something changes by itself next, in ns from now. */
static uint64_t next_ns(void)
{
	uint64_t now = now_ns(), until = atomic_load(&stop_until);
	uint64_t next = retry ? RETRY_NS : NO_END;

	if (until > FAILED && until != NO_END && (next == NO_END || until < now + next))
		next = until > now ? until - now : 0;
	groups_take();
	if (forget_at && (next == NO_END || forget_at < now + next))
		next = forget_at > now ? forget_at - now : 0;
	for (size_t i = 0; i < MOST_GPUS; i++) {
		uint64_t edge, at, on;

		if (!gpus[i].used || !atomic_load(&heeded) || gpus[i].duty.permille >= 1000)
			continue;
		at = phase_of(&gpus[i], now);
		on = runs_of(&gpus[i], now);
		edge = at < on ? on - at : unit_of(&gpus[i]) * 1000 - at;
		if (edge < next)
			next = edge;
	}
	groups_give();
	return next;
}

/* Ends a stop that lasts only while it is renewed. One without end goes on whatever happens, since
 * memory may be away: what could not be taken off is of later contexts, and nobody submits to it.
 */
static void fail_stop(const char *why)
{
	uint64_t until = atomic_load(&stop_until);
	bool failed = false;

	while (until > FAILED && until != NO_END && !failed)
		failed = atomic_compare_exchange_weak(&stop_until, &until, FAILED);
	if (failed)
		debug("a stop ends: %s", why);
}

static void end_stop(void)
{
	uint64_t until = atomic_load(&stop_until);

	if (until > FAILED && until <= now_ns() &&
	    atomic_compare_exchange_strong(&stop_until, &until, FAILED))
		debug("a stop ends: it was not renewed");
}

/* No daemon has come back: everything runs as the library made it. */
static void forget_wishes(void)
{
	groups_take();
	if (forget_at && forget_at <= now_ns()) {
		memset(gpus, 0, sizeof(gpus));
		forget_at = 0;
	}
	groups_give();
}

static void look(void)
{
	unsigned int request = atomic_load(&asked);

	retry = false;
	while (atomic_load(&state) != CHANNELS_REFUSED && learn_uuid())
		;
	ask_once();
	end_stop();
	forget_wishes();
	if (atomic_exchange(&checks, false) && atomic_load(&state) == CHANNELS_CONTROLLED)
		check_slices();
	if (atomic_load(&state) == CHANNELS_CONTROLLED)
		while (set_slice())
			;
	if (!change_all()) {
		/* What was taken off is put back, if that works. */
		fail_stop("not all channels can be taken off");
		change_all();
	}
	atomic_store(&done, request);
}

static void *guard_main(void *argument)
{
	(void)argument;
	for (;;) {
		unsigned int seen = atomic_load(&events);

		look();
		wait_for_events(seen, next_ns());
	}
	return NULL;
}

/* -- what the client thread asks for ----------------------------------------------------------- */

void channels_advance(bool has_contexts)
{
	if (atomic_load(&any) && !atomic_load(&runs) && thread_start(guard_main, STACK_BYTES))
		atomic_store(&runs, true);
	if (has_contexts && !atomic_load(&any) && atomic_load(&state) == CHANNELS_NONE)
		refuse("the driver's library makes no channel groups in this process, as where "
		       "an MPS server has them");
}

enum channels_state channels_state(void)
{
	return atomic_load(&state);
}

const char *channels_reason(void)
{
	return atomic_load(&state) == CHANNELS_REFUSED ? reason : "";
}

/* The place of a GPU; NULL: there are too many. The caller holds LOCK_CHANNELS. */
static struct gpu *gpu_place(const uint8_t uuid[GPU_UUID_BYTES])
{
	for (size_t i = 0; i < MOST_GPUS; i++) {
		if (!gpus[i].used) {
			gpus[i] =
			    (struct gpu){.used = true, .duty = {1000, 0, MIN_PERIOD_MS, false}};
			memcpy(gpus[i].uuid, uuid, GPU_UUID_BYTES);
		}
		if (!memcmp(gpus[i].uuid, uuid, GPU_UUID_BYTES))
			return &gpus[i];
	}
	return NULL;
}

void channels_set_slice(const uint8_t uuid[GPU_UUID_BYTES], uint64_t us)
{
	struct gpu *gpu;

	groups_take();
	gpu = gpu_place(uuid);
	if (gpu)
		gpu->slice_us = us;
	forget_at = 0;
	groups_give();
	ask();
}

void channels_divide_slice(const uint8_t uuid[GPU_UUID_BYTES], unsigned int groups)
{
	struct gpu *gpu;

	groups_take();
	gpu = gpu_place(uuid);
	if (gpu)
		gpu->parts = groups;
	groups_give();
	ask();
}

void channels_check_slices(void)
{
	atomic_store(&checks, true);
	wake_guard();
}

void channels_set_duty(const uint8_t uuid[GPU_UUID_BYTES], const struct duty *duty)
{
	struct gpu *gpu;

	groups_take();
	gpu = gpu_place(uuid);
	if (gpu)
		gpu->duty = *duty;
	if (gpu && gpu->duty.period_ms < MIN_PERIOD_MS)
		gpu->duty.period_ms = MIN_PERIOD_MS;
	forget_at = 0;
	groups_give();
	ask();
}

void channels_moved(void)
{
	struct groups *all = groups_take();

	for (size_t i = 0; i < MOST_SUBDEVICES; i++)
		all->subdevices[i].known = false;
	groups_give();
	ask();
}

void channels_heed_duties(bool heed)
{
	if (atomic_exchange(&heeded, heed) != heed)
		ask();
}

void channels_round(bool begins)
{
	atomic_store(&round_began, begins ? now_ns() : 0);
}

bool channels_paused(void)
{
	uint64_t now = now_ns();
	bool paused = false;

	groups_take();
	for (size_t i = 0; i < MOST_GPUS; i++)
		paused |= gpus[i].used && pauses(&gpus[i], now);
	groups_give();
	return paused;
}

void channels_keep(void)
{
	groups_take();
	for (size_t i = 0; i < MOST_GPUS; i++)
		if (gpus[i].used && gpus[i].duty.permille < LEAST_DUTY)
			gpus[i].duty.permille = LEAST_DUTY;
	forget_at = now_ns() + KEPT_NS;
	groups_give();
	ask();
}

static uint64_t end_of(uint64_t ns)
{
	return ns == NO_END ? NO_END : now_ns() + ns;
}

void channels_stop(uint64_t ns)
{
	atomic_store(&stop_until, end_of(ns));
	ask();
}

void channels_renew(uint64_t ns)
{
	uint64_t until = atomic_load(&stop_until), renewed = end_of(ns);

	while (until > FAILED && !atomic_compare_exchange_weak(&stop_until, &until, renewed))
		;
}

void channels_resume(void)
{
	struct groups *all = groups_take();

	for (size_t i = 0; i < MOST_CHANNELS; i++)
		all->channels[i].frozen = false;
	groups_give();
	atomic_store(&stop_until, 0);
	ask();
}

void channels_give_up(void)
{
	uint64_t began = atomic_load(&call_began);

	if (began && now_ns() - began >= HANGS_NS &&
	    atomic_fetch_add(&hung, 1) + 1 == MOST_FAILURES)
		refuse("a call that takes channels off the GPU does not return");
	channels_resume();
}

enum stop_phase channels_stop_phase(void)
{
	switch (atomic_load(&stop_until)) {
	case 0:
		return STOP_NONE;
	case FAILED:
		return STOP_FAILED;
	default:
		return channels_settled() ? STOP_IS : STOP_ASKED;
	}
}

/* -- copies ------------------------------------------------------------------------------------ */

/* Is it a channel of a copy engine of that GPU? */
static bool copies_on(struct groups *all, const struct channel *channel,
                      const uint8_t uuid[GPU_UUID_BYTES])
{
	const struct group *group =
	    channel->object ? group_find(all, channel->client, channel->group) : NULL;
	const struct subdevice *at = group ? subdevice_of(all, group) : NULL;

	return at && at->known && group->engine != RM_ENGINE_COMPUTE &&
	       !memcmp(at->uuid, uuid, GPU_UUID_BYTES);
}

unsigned int channels_list_copies(const uint8_t uuid[GPU_UUID_BYTES], struct copy_channel *list,
                                  unsigned int most)
{
	struct groups *all = groups_take();
	unsigned int n = 0;

	for (size_t i = 0; i < MOST_CHANNELS && n < most; i++)
		if (copies_on(all, &all->channels[i], uuid))
			list[n++] =
			    (struct copy_channel){all->channels[i].client, all->channels[i].object};
	groups_give();
	return n;
}

void channels_freeze_copies(const uint8_t uuid[GPU_UUID_BYTES], const struct copy_channel *list,
                            unsigned int n, bool listed)
{
	struct groups *all = groups_take();

	for (size_t i = 0; i < MOST_CHANNELS; i++) {
		struct channel *channel = &all->channels[i];
		bool is = false;

		if (!copies_on(all, channel, uuid))
			continue;
		for (unsigned int k = 0; k < n; k++)
			is |=
			    channel->client == list[k].client && channel->object == list[k].object;
		channel->frozen = is == listed;
	}
	groups_give();
	ask();
}

bool channels_settled(void)
{
	return atomic_load(&done) == atomic_load(&asked);
}

bool channels_settle(long us)
{
	uint64_t until = now_ns() + (uint64_t)us * 1000;

	while (!channels_settled() && now_ns() < until)
		pause_us(20);
	return channels_settled();
}

static void in_child(void)
{
	memset(gpus, 0, sizeof(gpus));
	forget_at = 0;
	atomic_store(&stop_until, 0);
	atomic_store(&asked, 0);
	atomic_store(&done, 0);
	atomic_store(&state, CHANNELS_NONE);
	atomic_store(&runs, false);
	atomic_store(&any, false);
	atomic_store(&call_began, 0);
	atomic_store(&round_began, 0);
	atomic_store(&hung, 0);
	atomic_store(&checks, false);
	failures = meddled = 0;
}
FORK_WATCH(in_child);
