// common.cuh: what the C programs of the checks share; nothing of CUDA.
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// End the program with a reason.
#define DIE(...)                                                                                   \
	do {                                                                                       \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                    \
		fprintf(stderr, __VA_ARGS__);                                                      \
		fputc('\n', stderr);                                                               \
		exit(1);                                                                           \
	} while (0)

static inline double clock_s(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Seconds of a clock that only goes forward.
static inline double now_s(void)
{
	return clock_s(CLOCK_MONOTONIC);
}

// Seconds that other processes can compare.
static inline double wall_s(void)
{
	return clock_s(CLOCK_REALTIME);
}

static inline void sleep_s(double seconds)
{
	struct timespec t;

	t.tv_sec = (time_t)seconds;
	t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
	nanosleep(&t, NULL);
}

// "true" if the interposer is in this process: JSON.
static inline const char *interposed(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4096];
	bool found = false;

	while (maps && fgets(line, sizeof(line), maps))
		found = found || strstr(line, "libgpulease.so");
	if (maps)
		fclose(maps);
	return found ? "true" : "false";
}

// With "ready" as the argument: say so, and go on when a line comes.
static inline void wait_for_go(const char *argument)
{
	char line[64];

	if (!argument || strcmp(argument, "ready"))
		return;
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		DIE("no go");
}
