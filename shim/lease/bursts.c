/* bursts.c: tells long bursts of work, and the pauses between them.
 *
 * Who protects a program while it works hears of it by messages, one at each end of a burst, so a
 * burst has to be long for that to be worth it. Of a program whose bursts are short it is taken
 * that it works, unless it does not for so long that it has nothing to do.
 */
#include "lease/bursts.h"

#define MS UINT64_C(1000000)
#define LONG_NS (20 * MS)  /* a burst */
#define PAUSE_NS (10 * MS) /* from which on a long burst has ended */
#define IDLE_NS (500 * MS) /* from which on there is nothing to do */

enum bursts_news bursts_note(struct bursts *bursts, bool works, uint64_t ns)
{
	uint64_t enough = bursts->worked_ns >= LONG_NS ? PAUSE_NS : IDLE_NS;
	bool rested = bursts->rests;

	if (works) {
		bursts->worked_ns = ns + (bursts->rested_ns < PAUSE_NS ? bursts->worked_ns : 0);
		bursts->rested_ns = 0;
		bursts->rests = false;
		return rested ? BURSTS_WORKS : BURSTS_NOTHING;
	}
	bursts->rested_ns += ns;
	bursts->rests = rested || bursts->rested_ns >= enough;
	return bursts->rests != rested ? BURSTS_RESTS : BURSTS_NOTHING;
}
