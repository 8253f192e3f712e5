/* shim_races.c: what two threads of a program do at the same moment, one scenario a run.
 *
 * Linked with the emulated driver, which holds a thread at the start of a call
 * (tests/emugpu/abi/hold.c), and run under the interposer by test_races.py. A line on
 * standard output says how far it is, one on standard input lets it go on.
 */
#include "races.h"

#include <stddef.h>
#include <string.h>

static const struct scenario {
	const char *name;
	void (*run)(void);
} scenarios[] = {
#define SCENARIO(name, run) {name, run},
    MEMORY_SCENARIOS(SCENARIO) CONTEXT_SCENARIOS(SCENARIO) DRAIN_SCENARIOS(SCENARIO)
#undef SCENARIO
};

int main(int n, char **arguments)
{
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		if (n == 2 && !strcmp(scenarios[i].name, arguments[1])) {
			scenarios[i].run();
			say("done");
			return 0;
		}
	}
	fail("no such scenario", n);
}
