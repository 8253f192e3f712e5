/* fingerprint.c: the kernel gpu_lease_fingerprint, which programs bring along as PTX.
 *
 * It reads tiles of 4 KiB: 32 lanes, each with vectors of four words, 512 bytes apart. Words of
 * two vectors are pairs; each pass adds keys to a pair, multiplies, and sums up modulo 2^64. The
 * sums of a lane are coefficients of two polynomials modulo 2^61 - 1, in which the lanes are
 * folded after 64 tiles. Speed matters here: tests on busy machines wait for it.
 */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define LANES 32
#define PASSES 4
#define PAIRS 16
#define STRETCH 64 /* tiles */
#define FOLDS 5
#define PRIME ((UINT64_C(1) << 61) - 1)

/* The kernel's last parameter. */
struct keys {
	uint32_t words[2 * (PAIRS + PASSES - 1)];
	uint64_t step[2], fold[2][FOLDS];
};

struct fingerprint {
	struct keys keys;
	void (*sums)(const struct keys *keys, const uint32_t *tile, uint64_t out[PASSES][LANES]);
	uint64_t square[2]; /* of the steps */
	uint64_t x[2][LANES];
	size_t tiles, n; /* done of the stretch; values so far */
	uint64_t values[][2];
};

static uint64_t fold_once(uint64_t value)
{
	return (value & PRIME) + (value >> 61);
}

static uint64_t multiply_add(uint64_t x, uint64_t factor, uint64_t added)
{
	unsigned __int128 product = (unsigned __int128)x * factor;

	return fold_once(((uint64_t)product & PRIME) + (uint64_t)(product >> 61) +
	                 fold_once(added));
}

/* (x * step + first) * step + second, with one reduction. */
static uint64_t two_steps(uint64_t x, uint64_t step, uint64_t square, uint64_t first,
                          uint64_t second)
{
	unsigned __int128 sum =
	    (unsigned __int128)x * square + (unsigned __int128)fold_once(first) * step + second;

	return fold_once(((uint64_t)sum & PRIME) + (uint64_t)(sum >> 61));
}

static void sums_plain(const struct keys *keys, const uint32_t *tile, uint64_t out[PASSES][LANES])
{
	memset(out, 0, sizeof(uint64_t[PASSES][LANES]));
	for (size_t pass = 0; pass < PASSES; pass++)
		for (size_t i = 0; i < PAIRS; i++)
			for (size_t lane = 0; lane < LANES; lane++) {
				const uint32_t *key = keys->words + 2 * (i + pass);
				const uint32_t *x = tile + (i / 4 * 2 * LANES + lane) * 4 + i % 4;

				out[pass][lane] +=
				    (uint64_t)(x[0] + key[0]) * (x[4 * LANES] + key[1]);
			}
}

#ifdef __x86_64__
/* The keys of one pass over eight words of one vector, and over the eight that they are paired
 * with: two lanes. */
__attribute__((target("avx2"))) static void spread(const uint32_t *key, __m256i out[2])
{
	uint32_t words[2][8];

	for (size_t i = 0; i < 8; i++) {
		words[0][i] = key[i % 4 * 2];
		words[1][i] = key[i % 4 * 2 + 1];
	}
	out[0] = _mm256_loadu_si256((const void *)words[0]);
	out[1] = _mm256_loadu_si256((const void *)words[1]);
}

/* Adds one q of two lanes. */
__attribute__((target("avx2"), always_inline)) static inline void
add_pairs(const __m256i key[2], __m256i x, __m256i y, __m256i *sum)
{
	__m256i a = _mm256_add_epi32(x, key[0]), b = _mm256_add_epi32(y, key[1]);
	__m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));

	*sum = _mm256_add_epi64(*sum, _mm256_add_epi64(_mm256_mul_epu32(a, b), odd));
}

__attribute__((target("avx2"))) static void sums_avx2(const struct keys *keys, const uint32_t *tile,
                                                      uint64_t out[PASSES][LANES])
{
	__m256i parts[PASSES][LANES / 2];

	memset(parts, 0, sizeof(parts));
	for (size_t q = 0; q < 4; q++) {
		__m256i key[PASSES][2];

		for (size_t pass = 0; pass < PASSES; pass++)
			spread(keys->words + 2 * (4 * q + pass), key[pass]);
		for (size_t lane = 0; lane < LANES; lane += 2) {
			const uint32_t *at = tile + (2 * q * LANES + lane) * 4;
			__m256i x = _mm256_loadu_si256((const void *)at);
			__m256i y = _mm256_loadu_si256((const void *)(at + 4 * LANES));

			for (size_t pass = 0; pass < PASSES; pass++)
				add_pairs(key[pass], x, y, &parts[pass][lane / 2]);
		}
	}
	for (size_t pass = 0; pass < PASSES; pass++)
		for (size_t lane = 0; lane < LANES; lane++) {
			uint64_t part[2];

			memcpy(part, (const char *)parts[pass] + lane * sizeof(part), sizeof(part));
			out[pass][lane] = part[0] + part[1];
		}
}
#endif

static void end_stretch(struct fingerprint *f)
{
	for (size_t which = 0; which < 2; which++) {
		uint64_t *x = f->x[which];

		for (size_t i = FOLDS; i--;)
			for (size_t lane = 0; lane < (size_t)1 << i; lane++)
				x[lane] = multiply_add(x[lane + ((size_t)1 << i)],
				                       f->keys.fold[which][i], x[lane]);
		f->values[f->n][which] = x[0];
		memset(x, 0, sizeof(f->x[which]));
	}
	f->n++;
	f->tiles = 0;
}

struct fingerprint *fingerprint_begin(const uint8_t *keys, uint64_t tiles)
{
	size_t n = (size_t)(tiles / STRETCH) + 1;
	struct fingerprint *f = calloc(1, sizeof(*f) + n * sizeof(f->values[0]));

	if (!f)
		return NULL;
	memcpy(&f->keys, keys, sizeof(f->keys));
	for (size_t which = 0; which < 2; which++)
		f->square[which] = multiply_add(f->keys.step[which], f->keys.step[which], 0);
	f->sums = sums_plain;
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2"))
		f->sums = sums_avx2;
#endif
	return f;
}

void fingerprint_tiles(struct fingerprint *f, const uint8_t *bytes, uint64_t tiles)
{
	uint64_t sums[PASSES][LANES];

	for (; tiles; tiles--, bytes += FINGERPRINT_TILE) {
		f->sums(&f->keys, (const uint32_t *)(const void *)bytes, sums);
		for (size_t which = 0; which < 2; which++)
			for (size_t lane = 0; lane < LANES; lane++)
				f->x[which][lane] = two_steps(
				    f->x[which][lane], f->keys.step[which], f->square[which],
				    sums[2 * which][lane], sums[2 * which + 1][lane]);
		if (++f->tiles == STRETCH)
			end_stretch(f);
	}
}

const uint8_t *fingerprint_values(struct fingerprint *f, uint64_t *size)
{
	if (f->tiles)
		end_stretch(f);
	*size = f->n * sizeof(f->values[0]);
	return (const uint8_t *)f->values;
}
