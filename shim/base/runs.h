/* runs.h: finds runs of free units in a bitmap, first fit. A set bit is a unit in use.
 *
 * The caller holds whatever lock protects the bitmap.
 */
#ifndef GPU_LEASE_RUNS_H
#define GPU_LEASE_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUN_WORD 64 /* bits of a word */

/* How many words a bitmap of so many units needs. */
static inline size_t run_words(size_t units)
{
	return (units + RUN_WORD - 1) / RUN_WORD;
}

/* Is unit i in use? */
static inline bool run_bit(const uint64_t *bits, size_t i)
{
	return bits[i / RUN_WORD] >> i % RUN_WORD & 1;
}

/* Marks n units from `first` on as in use (value true) or as free. */
static inline void run_set(uint64_t *bits, size_t first, size_t n, bool value)
{
	for (size_t i = first; i < first + n; i++) {
		uint64_t mask = UINT64_C(1) << i % RUN_WORD;

		bits[i / RUN_WORD] = value ? bits[i / RUN_WORD] | mask : bits[i / RUN_WORD] & ~mask;
	}
}

/* The first of n free units in a row, or `units` if there is no such run. */
static inline size_t run_find(const uint64_t *bits, size_t units, size_t n)
{
	size_t run = 0;

	for (size_t i = 0; i < units; i++) {
		if (i % RUN_WORD == 0 && bits[i / RUN_WORD] == UINT64_MAX) {
			run = 0;
			i += RUN_WORD - 1;
			continue;
		}
		run = run_bit(bits, i) ? 0 : run + 1;
		if (run == n)
			return i + 1 - n;
	}
	return units;
}

#endif
