/* kind_contract.c: tests what every kind of memory promises (shim/memory/kind.h), case by case.
 *
 * kind_contract: prints the cases and kinds, one pair on each line. kind_contract CASE KIND: runs
 * one, in shim/memory alone, on a fake driver in this process. A new kind is tested as soon as it
 * has a row in MEMORY_KINDS.
 */
#include "kind_cases.h"

const struct memory_kind *kind;

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
#define CASE(name) {#name, name},
    ALLOCATION_CASES(CASE) LIMIT_CASES(CASE) MOVE_CASES(CASE)
#undef CASE
};
#define N_CASES (sizeof(cases) / sizeof(cases[0]))

static void list(void)
{
	for (size_t c = 0; c < N_CASES; c++)
		for (size_t k = 0; k < N_MEMORY_KINDS; k++)
			printf("%s %s\n", cases[c].name, memory_kinds[k]->name);
}

/* The job may use this kind, and has its lease. */
static void set_up(void)
{
	fake_rooms.swaps = true;
	fake_driver.current = fake_context(0);
	device_uuid(0);
	CHECK(memory_kinds[kind->row] == kind);
	CHECK(kind->serves(0));
	hold();
}

int main(int argc, char **argv)
{
	void (*run)(void) = NULL;

	if (argc != 3) {
		list();
		return 0;
	}
	for (size_t c = 0; c < N_CASES; c++)
		if (!strcmp(cases[c].name, argv[1]))
			run = cases[c].run;
	for (size_t k = 0; k < N_MEMORY_KINDS; k++)
		if (!strcmp(memory_kinds[k]->name, argv[2]))
			kind = memory_kinds[k];
	CHECK(run && kind);
	set_up();
	run();
	return 0;
}
