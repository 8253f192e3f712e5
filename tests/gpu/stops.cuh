// stops.cuh: what stops.cu and stops_runtime.cu have in common: their kinds, and the digest of what
// they compute.
#pragma once

#include "common.cuh"

typedef unsigned long long u64;

static u64 words; // of memory
static unsigned int rounds;
static u64 digest = 14695981039346656037ull;

struct kind {
	const char *name;
	void (*take)(void);
	void (*step)(unsigned int step);
};

static void mix(const void *data, size_t bytes)
{
	const unsigned char *byte = (const unsigned char *)data;

	for (size_t i = 0; i < bytes; i++)
		digest = (digest ^ byte[i]) * 1099511628211ull;
}

// Takes the arguments. Returns the kind that they name, of n.
static const struct kind *begin(int argc, char **argv, const struct kind *kinds, size_t n)
{
	if (argc < 6)
		DIE("usage: %s KERNELS.ptx KIND MIB ROUNDS STEPS [ready]", argv[0]);
	words = strtoull(argv[3], NULL, 10) << 18;
	rounds = (unsigned int)atoi(argv[4]);
	for (size_t i = 0; i < n; i++)
		if (!strcmp(argv[2], kinds[i].name))
			return &kinds[i];
	DIE("no kind %s", argv[2]);
}

// All steps. finish: waits for what is submitted. Returns how many seconds they took.
static double work(const struct kind *kind, int argc, char **argv, void (*finish)(void))
{
	double begun;

	kind->take();
	finish();
	wait_for_go(argc > 6 ? argv[6] : NULL);
	begun = now_s();
	for (unsigned int step = 0; step < (unsigned int)atoi(argv[5]); step++)
		kind->step(step);
	finish();
	return now_s() - begun;
}

static void report(double seconds)
{
	printf("{\"interposed\": %s, \"digest\": \"%016llx\", \"seconds\": %.3f}\n", interposed(),
	       digest, seconds);
}
