/* channels.h: the channel groups of this process on the hardware: their time slices, and stops in
 * mid-kernel.
 *
 * A process may do this to its own groups, without privileges. A thread of our own, the guard, does
 * it: it calls no function of the driver's library, so it never waits for a lock that a thread of
 * the program holds there, and it ends a stop that is not renewed. So what is asked for here
 * happens a little later.
 *
 * Of the client thread, unless a function says otherwise.
 */
#ifndef GPU_LEASE_CHANNELS_H
#define GPU_LEASE_CHANNELS_H

#include "base/watch.h"
#include "channels/stop_phase.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -- can it be done? ----------------------------------------------------------------------- */

enum channels_state {
	CHANNELS_NONE, /* the process has no group */
	CHANNELS_CONTROLLED,
	CHANNELS_REFUSED /* channels_reason() says why */
};

/* Starts the guard once there are groups. has_contexts: the program has contexts. */
void channels_advance(bool has_contexts);
enum channels_state channels_state(void);
/* Called when it has changed, by the guard or the client thread. */
WATCH_LIST(channels_watches, void(void));
#define CHANNELS_WATCH(changed) WATCH(channels_watches, changed)
/* Why groups cannot be controlled, for people. */
const char *channels_reason(void);

/* -- time slices ------------------------------------------------------------------------------ */

/* The slice of each compute group on that GPU, also of later ones; 0: as the library made it. */
void channels_set_slice(const uint8_t uuid[16], uint64_t us);
/* So many of the process's groups on that GPU have work: each has a part of the slice, so that the
 * process has it once. */
void channels_divide_slice(const uint8_t uuid[16], unsigned int groups);
/* Looks whether they are as they were set. Others are set back; a program that has set others three
 * times in a row cannot be controlled. */
void channels_check_slices(void);
/* The part of each period in which they may run, and when it begins, per mille; from 1000 on:
 * always. period_ms: 0: MIN_PERIOD_MS. copies: the groups of copy engines too, but for stops. */
struct duty {
	uint16_t permille, begins, period_ms;
	bool copies;
};
#define MIN_PERIOD_MS 20
void channels_set_duty(const uint8_t uuid[16], const struct duty *duty);
/* Duties count from now on, or do not. They do while the program works: without a lease nothing of
 * it runs, and our own work, by which its memory leaves and comes back, is not to be held. */
void channels_heed_duties(bool heed);
/* The client thread begins a round of its loop, or waits for an event. In a round that lasts for
 * too long duties of next to nothing do not count. */
void channels_round(bool begins);
/* Is this the time in which they may not run on one of the GPUs? */
bool channels_paused(void);

/* The daemon that wanted these is gone. They are kept until another one says what it wants, so that
 * jobs beside this one do not suffer, but for half a minute at most, and a duty of next to nothing
 * is raised: nobody may end it. Then everything runs as the library made it. */
void channels_keep(void);

/* The process has moved to another GPU: which GPU each device is has to be found out anew. */
void channels_moved(void);

/* -- stops --------------------------------------------------------------------------------------
 *
 * A stop takes all compute groups off the hardware, in mid-kernel. Copies of the program go on,
 * unless they are frozen or wait for a kernel. */

#define STOP_LASTS_NS UINT64_C(100000000) /* unless it is renewed */

/* Asks for a stop, which ends by itself after `ns` unless it is renewed. */
void channels_stop(uint64_t ns);
/* Renews it, unless it has ended. UINT64_MAX: it lasts until channels_resume(), also if groups that
 * are made meanwhile cannot be stopped. */
void channels_renew(uint64_t ns);
void channels_resume(void);
/* The same, of a stop that has lasted for too long without being one. Where that is since the
 * driver does not return, three times in a row, groups cannot be controlled any more. */
void channels_give_up(void);
/* Any thread may ask. */
enum stop_phase channels_stop_phase(void);

/* -- copies during a stop ---------------------------------------------------------------------- */

/* A channel of a copy engine of that GPU. */
struct copy_channel {
	uint32_t client, object;
};
/* Lists them. Returns how many there are, at most `most`. */
unsigned int channels_list_copies(const uint8_t uuid[16], struct copy_channel *list,
                                  unsigned int most);
/* Freezes those that are listed, or those that are not, and thaws the others. */
void channels_freeze_copies(const uint8_t uuid[16], const struct copy_channel *list, unsigned int n,
                            bool listed);
/* Has the guard done all that was asked for? Any thread may ask. */
bool channels_settled(void);
/* Waits for that for at most `us`. */
bool channels_settle(long us);

#endif
