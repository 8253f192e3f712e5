/* idle_filter.c: idle.c for a test. Lines "note PAUSE HANDOFF" and "ask SO_FAR HANDOFF", in
 * ns; an answer, 0 or 1, to each "ask". */
#include "lease/idle.h"

#include <inttypes.h>
#include <stdio.h>

int main(void)
{
	struct idle_history history = {0};
	uint64_t ns, handoff_ns;
	char what[8];

	while (scanf("%7s %" SCNu64 " %" SCNu64, what, &ns, &handoff_ns) == 3) {
		if (what[0] == 'n') {
			idle_note(&history, ns, handoff_ns);
			continue;
		}
		printf("%d\n", idle_enough(&history, ns, handoff_ns));
		fflush(stdout);
	}
	return 0;
}
