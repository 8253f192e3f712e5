/* fingerprint.h: 128 bits that say whether bytes are what they were.
 *
 * A keyed universal hash; docs/swap.md ("Clean memory") has the argument. Bytes are taken in
 * tiles of 4 KiB, and of each tile 32 lanes take 128 bytes each: as a warp of a device does,
 * and as fingerprint.ptx does it. So many tiles as one warp takes are a stretch. Each of two
 * values modulo 2^61 - 1 is the join of the values of the stretches.
 */
#ifndef GPU_LEASE_FINGERPRINT_H
#define GPU_LEASE_FINGERPRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FINGERPRINT_TILE 4096 /* bytes; what is not whole tiles has no fingerprint */
#define FINGERPRINT_LANES 32
#define FINGERPRINT_STRETCH 64 /* tiles */
#define FINGERPRINT_PASSES 4
#define FINGERPRINT_WORDS 32 /* of a lane in a tile */
#define FINGERPRINT_FOLDS 5  /* halvings from 32 lanes to one */

struct fingerprint {
	uint64_t a, b; /* below 2^61 - 1 */
};

/* What the kernel gets, as fingerprint.ptx reads it. */
struct fingerprint_keys {
	uint32_t words[FINGERPRINT_WORDS + 2 * (FINGERPRINT_PASSES - 1)];
	uint64_t step[2];                    /* from one value of a lane to the next */
	uint64_t fold[2][FINGERPRINT_FOLDS]; /* of 1, 2, 4, 8, 16 lanes to as many */
};

struct fingerprint_secret {
	struct fingerprint_keys keys;
	uint64_t join[2]; /* from one stretch to the next */
};

/* Random keys. False: there are none to be had. */
bool fingerprint_draw(struct fingerprint_secret *out);
/* Of at most FINGERPRINT_STRETCH tiles; as a kernel may leave it: not fully reduced. */
struct fingerprint fingerprint_stretch(const struct fingerprint_keys *keys, const void *bytes,
                                       size_t tiles);
/* Of the values of n stretches in a row. */
struct fingerprint fingerprint_join(const struct fingerprint_secret *secret,
                                    const struct fingerprint *stretches, size_t n);

static inline bool fingerprints_equal(struct fingerprint one, struct fingerprint other)
{
	return one.a == other.a && one.b == other.b;
}

static inline size_t fingerprint_stretches(size_t tiles)
{
	return (tiles + FINGERPRINT_STRETCH - 1) / FINGERPRINT_STRETCH;
}

#endif
