/* idle.c: decides when to give the device up because the program pauses.
 *
 * Waiting for the end of a pause costs the pause's length; giving the device up costs a handoff.
 * Without knowledge of the future it is best to wait for as long as a handoff takes: the cost is
 * then at most twice the least possible (ski rental, Karlin et al. 1988). But the pauses of a
 * program are alike. If earlier pauses that had lasted as long as the present one mostly went on
 * for longer than a handoff takes, the device is given up at once (Karlin et al. 1994, by the
 * observed distribution; here by its mean over about the last eight pauses).
 */
#include "lease/idle.h"

#define REMEMBERED 8 /* pauses; older ones count less and less */

void idle_note(struct idle_history *history, uint64_t pause_ns, uint64_t handoff_ns)
{
	for (int i = 0; i < IDLE_STEPS && pause_ns > IDLE_FIRST_NS << i; i++) {
		uint64_t rest = pause_ns - (IDLE_FIRST_NS << i);
		/* A pause that went on for longer than a handoff takes costs two handoffs: one for
		 * waiting in vain, and the handoff itself. */
		float regret = rest < handoff_ns ? (float)rest / (float)handoff_ns : 2;
		unsigned int n = ++history->seen[i];

		history->regret[i] +=
		    (regret - history->regret[i]) / (float)(n < REMEMBERED ? n : REMEMBERED);
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
