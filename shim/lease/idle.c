/* idle.c: when to give up the device because the program pauses.
 *
 * A pause costs its length, giving up costs a handoff. Who knows nothing of what
 * comes waits for as long as a handoff takes: never more than twice the best in
 * hindsight (Karlin et al. 1988, ski rental). But a program's pauses are much
 * alike: where those that had lasted so long went on for longer than a handoff
 * takes, the device is given up at once (Karlin et al. 1994, by the distribution
 * seen; here its mean, over about the last eight).
 */
#include "lease/idle.h"

#define MEMORY 8 /* pauses; older ones count less and less */

void idle_note(struct idle_history *history, uint64_t pause_ns, uint64_t handoff_ns)
{
	for (int i = 0; i < IDLE_STEPS && pause_ns > IDLE_FIRST_NS << i; i++) {
		uint64_t rest = pause_ns - (IDLE_FIRST_NS << i);
		/* Waiting as long as a handoff takes, and then giving up all the same. */
		float regret = rest < handoff_ns ? (float)rest / (float)handoff_ns : 2;
		unsigned int n = ++history->seen[i];

		history->regret[i] +=
		    (regret - history->regret[i]) / (float)(n < MEMORY ? n : MEMORY);
	}
}

bool idle_enough(const struct idle_history *history, uint64_t so_far_ns, uint64_t handoff_ns)
{
	int i = IDLE_STEPS - 1;

	if (so_far_ns >= handoff_ns)
		return true;
	while (i >= 0 && so_far_ns < IDLE_FIRST_NS << i)
		i--;
	return i >= 0 && history->seen[i] && history->regret[i] > 1;
}
