/* memory_movers.c: evicting and restoring memory (shim/memory/mover.h), in shim/memory alone, with
 * fakes of the driver and of the other rooms.
 *
 * memory_movers: prints the cases, one on each line. memory_movers CASE: runs one.
 */
#include "mover_cases.h"

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
#define CASE(name) {#name, name},
    MANAGED_CASES(CASE) SWAPPED_CASES(CASE) STORE_CASES(CASE) HOST_MEMORY_CASES(CASE)
        CARRIER_CASES(CASE) REST_CASES(CASE) DETAILS_CASES(CASE) LANE_CASES(CASE) CLEAN_CASES(CASE)
#undef CASE
};

int main(int argc, char **argv)
{
	fake_rooms.swaps = true;
	fake_rooms.cleans = true;
	fake_driver.current = fake_context(0);
	device_uuid(0);
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		if (argc != 2)
			printf("%s\n", cases[c].name);
		else if (!strcmp(cases[c].name, argv[1])) {
			cases[c].run();
			return 0;
		}
	}
	return argc == 2;
}
