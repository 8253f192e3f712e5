/* saving.c: this process's memory is saved to files, and perhaps the process with it.
 *
 * The client thread does nothing else meanwhile. It waits by sleeping, since whoever saves the
 * process writes to its memory and has no other way to wake it: the process may be restored on
 * another node, where nothing is left of its connections.
 */
#include "lease/saving.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/process.h"
#include "channels/channels.h"
#include "driver/devices.h"
#include "lease/connection.h"
#include "lease/link.h"
#include "lease/stops.h"
#include "memory/changes.h"
#include "memory/swap/in_stop.h"
#include "memory/swap/saved.h"

#include <string.h>

#define PAUSE_US 2000
/* So many pauses, some 60 s, without a beat: whoever wanted to save the process has ended. */
#define MOST_PAUSES 30000

static uint32_t state_of(const struct gl_saved *saved)
{
	return __atomic_load_n(&saved->state, __ATOMIC_ACQUIRE);
}

static void become(struct gl_saved *saved, enum gl_saved_state state)
{
	debug("is saved: state %u", state);
	__atomic_store_n(&saved->state, state, __ATOMIC_RELEASE);
}

void saving_process_moved(const uint8_t from[16], const uint8_t to[16])
{
	devices_moved(from, to);
	channels_moved();
	swap_stop_forget();
	memory_changed();
}

/* This host may have another clock than the one before. */
static void go_on(struct gl_saved *saved)
{
	static const uint8_t none[sizeof(saved->old)];
	bool given = connection_fd() < 0;

	if (memcmp(saved->old, saved->fresh, sizeof(none)) &&
	    memcmp(saved->old, none, sizeof(none)))
		saving_process_moved(saved->old, saved->fresh);
	if (given)
		connection_retry();
	become(saved, GL_SAVED_OVER);
}

void saving_run(void)
{
	struct gl_saved *saved = saved_list();
	struct gl_saves saves = {.header = message_header(GL_SAVES, sizeof(saves)),
	                         .at = (uint64_t)(uintptr_t)saved};
	uint32_t beats = 0;
	int pauses = 0;

	link_send(&saves, sizeof(saves));
	while (saved && !atomic_load(&process_ends)) {
		switch (state_of(saved)) {
		case GL_SAVED_LISTED:
			pauses = __atomic_load_n(&saved->beats, __ATOMIC_RELAXED) == beats
			             ? pauses + 1
			             : 0;
			beats = __atomic_load_n(&saved->beats, __ATOMIC_RELAXED);
			if (pauses > MOST_PAUSES)
				become(saved, GL_SAVED_FILLED);
			break;
		case GL_SAVED_GIVE:
			link_lose();
			saved_give();
			become(saved, GL_SAVED_GIVEN);
			break;
		case GL_SAVED_TAKE:
			saved_take();
			become(saved, GL_SAVED_TAKEN);
			break;
		case GL_SAVED_FILLED:
			go_on(saved);
			return;
		default:
			break;
		}
		pause_us(PAUSE_US);
	}
}
