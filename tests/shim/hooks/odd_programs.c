/* odd_programs.c: programs that do what few do, one scenario a run, under the interposer.
 *
 * Linked with the emulated driver, and run by test_odd_programs.py. A line on standard output says
 * how far it is, one on standard input lets it go on.
 */
#include "odd.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

/* Of programs in Fortran: more than the whole stack of a small thread. */
#ifdef THREAD_LOCAL_BYTES
static __thread volatile char thread_local_bytes[THREAD_LOCAL_BYTES];
#endif

CUresult submit(void)
{
	static CUdeviceptr pointer;

	if (!pointer)
		OK(cuMemAlloc(&pointer, 4096));
	return cuMemsetD8(pointer, 1, 4096);
}

int descriptors(int found[MOST_FILES])
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	int n = 0;

	while ((entry = readdir(folder)))
		if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder))
			found[n++] = atoi(entry->d_name);
	closedir(folder);
	return n;
}

static const struct scenario {
	const char *name;
	void (*run)(void);
} scenarios[] = {
#define SCENARIO(name, run) {name, run},
    DESCRIPTOR_SCENARIOS(SCENARIO) LIMIT_SCENARIOS(SCENARIO) END_SCENARIOS(SCENARIO)
        WAIT_SCENARIOS(SCENARIO)
#undef SCENARIO
};

int main(int n, char **arguments)
{
#ifdef THREAD_LOCAL_BYTES
	thread_local_bytes[0] = 1;
	if (n == 1) {
		set_up();
		OK(submit());
		say("done");
		return 0;
	}
#endif
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		if (n == 2 && !strcmp(scenarios[i].name, arguments[1])) {
			scenarios[i].run();
			say("done");
			return 0;
		}
	}
	fail("no such scenario", n);
}
