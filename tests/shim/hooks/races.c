/* races.c: what the scenarios of shim_races.c share. */
#include "races.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MANY 200000 /* times that a thread is looked at */

static CUcontext primary;

_Noreturn void fail(const char *what, int number)
{
	fprintf(stderr, "%s: %s: %d\n", program_invocation_short_name, what, number);
	_exit(1);
}

void say(const char *what)
{
	printf("%s\n", what);
	fflush(stdout);
}

void wait_for_test(void)
{
	char line[16];

	if (!fgets(line, sizeof(line), stdin))
		fail("the test is gone", 0);
}

void set_up(void)
{
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	OK(cuCtxSetCurrent(primary));
}

void held(void)
{
	if (!emugpu_held())
		fail("no thread has come to the call", 0);
}

/* -- other threads ---------------------------------------------------------------- */

static void *other_main(void *argument)
{
	struct other *other = argument;

	OK(cuCtxSetCurrent(primary));
	atomic_store(&other->id, (int)syscall(SYS_gettid));
	other->body(other);
	return NULL;
}

void start(struct other *other, void (*body)(struct other *))
{
	other->body = body;
	if (pthread_create(&other->thread, NULL, other_main, other))
		fail("pthread_create", 0);
}

/* Until the thread waits for another one, in a lock or for a condition. */
void until_waiting(struct other *other)
{
	char path[64], line[64];
	int call = -1;

	while (!atomic_load(&other->id))
		usleep(100);
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", atomic_load(&other->id));
	for (int tries = 0; call != SYS_futex; tries++) {
		FILE *file = fopen(path, "r");

		usleep(100);
		if (!file || tries == MANY)
			fail("the thread does not wait for another one", call);
		call = fgets(line, sizeof(line), file) ? atoi(line) : -1;
		fclose(file);
	}
}
