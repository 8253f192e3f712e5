/* fingerprint.c: computes fingerprints on the host, and draws their keys. */
#include "memory/swap/fingerprint.h"

#include "base/random.h"

#include <string.h>

#define PRIME ((UINT64_C(1) << 61) - 1)

_Static_assert(sizeof(struct fingerprint_keys) == 248, "fingerprint.ptx reads them so");

/* A number that is equal to `value` modulo PRIME, and at most PRIME + 7. */
static uint64_t fold_once(uint64_t value)
{
	return (value & PRIME) + (value >> 61);
}

static uint64_t reduced(uint64_t value)
{
	value = fold_once(value);
	return value >= PRIME ? value - PRIME : value;
}

/* x and factor: at most PRIME + 7; added: anything. */
static uint64_t multiply_add(uint64_t x, uint64_t factor, uint64_t added)
{
	unsigned __int128 product = (unsigned __int128)x * factor;

	return fold_once(((uint64_t)product & PRIME) + (uint64_t)(product >> 61) +
	                 fold_once(added));
}

/* One pass over the words of one lane: words of the vectors 2q and 2q + 1 are pairs. */
static uint64_t pass_over(const uint32_t *key, const char *lane)
{
	uint64_t sum = 0;

	for (size_t q = 0; q < 4; q++) {
		uint32_t x[4], y[4];

		memcpy(x, lane + 2 * q * sizeof(x) * FINGERPRINT_LANES, sizeof(x));
		memcpy(y, lane + (2 * q + 1) * sizeof(y) * FINGERPRINT_LANES, sizeof(y));
		for (size_t c = 0; c < 4; c++, key += 2)
			sum += (uint64_t)(x[c] + key[0]) * (y[c] + key[1]);
	}
	return sum;
}

/* The value of one lane over all tiles, for the first or the second half of the fingerprint
 * (which: 0 or 1). */
static uint64_t lane_value(const struct fingerprint_keys *keys, const char *lane, size_t tiles,
                           size_t which)
{
	uint64_t x = 0;

	for (; tiles; tiles--, lane += FINGERPRINT_TILE)
		for (size_t pass = 2 * which; pass < 2 * which + 2; pass++)
			x = multiply_add(x, keys->step[which],
			                 pass_over(keys->words + 2 * pass, lane));
	return x;
}

static uint64_t stretch_value(const struct fingerprint_keys *keys, const char *bytes, size_t tiles,
                              size_t which)
{
	uint64_t x[FINGERPRINT_LANES];

	for (size_t lane = 0; lane < FINGERPRINT_LANES; lane++)
		x[lane] = lane_value(keys, bytes + 16 * lane, tiles, which);
	for (size_t i = FINGERPRINT_FOLDS; i--;)
		for (size_t lane = 0; lane < (size_t)1 << i; lane++)
			x[lane] =
			    multiply_add(x[lane + ((size_t)1 << i)], keys->fold[which][i], x[lane]);
	return x[0];
}

struct fingerprint fingerprint_stretch(const struct fingerprint_keys *keys, const void *bytes,
                                       size_t tiles)
{
	return (struct fingerprint){stretch_value(keys, bytes, tiles, 0),
	                            stretch_value(keys, bytes, tiles, 1)};
}

struct fingerprint fingerprint_join(const struct fingerprint_secret *secret,
                                    const struct fingerprint *stretches, size_t n)
{
	struct fingerprint out = {0, 0};

	for (size_t i = 0; i < n; i++) {
		out.a = multiply_add(out.a, secret->join[0], stretches[i].a);
		out.b = multiply_add(out.b, secret->join[1], stretches[i].b);
	}
	return (struct fingerprint){reduced(out.a), reduced(out.b)};
}

/* -- keys ------------------------------------------------------------------------------- */

/* Draws a number uniformly from those below PRIME. */
static bool draw_below_prime(uint64_t *out)
{
	do {
		if (!random_bytes(out, sizeof(*out), GRND_NONBLOCK))
			return false;
		*out &= PRIME;
	} while (*out == PRIME);
	return true;
}

bool fingerprint_draw(struct fingerprint_secret *out)
{
	bool good = random_bytes(out->keys.words, sizeof(out->keys.words), GRND_NONBLOCK);

	for (size_t which = 0; which < 2; which++) {
		good = good && draw_below_prime(&out->keys.step[which]) &&
		       draw_below_prime(&out->join[which]);
		for (size_t i = 0; i < FINGERPRINT_FOLDS; i++)
			good = good && draw_below_prime(&out->keys.fold[which][i]);
	}
	return good;
}
