/* fingerprint.h: a fingerprint tells, by two values of 61 bits, whether bytes have changed.
 *
 * It is a keyed universal hash; docs/swap.md ("Clean memory") says why it is sufficient. Bytes are
 * divided into tiles of 4 KiB. Each of 32 lanes hashes 128 bytes of a tile, as the threads of a
 * warp do in fingerprint.ptx, which computes the same on a device. The tiles that one warp hashes
 * are a stretch, and a fingerprint is computed from the values of its stretches, modulo 2^61 - 1.
 *
 * The functions use no lock and no global state.
 */
#ifndef GPU_LEASE_FINGERPRINT_H
#define GPU_LEASE_FINGERPRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FINGERPRINT_TILE 4096 /* bytes; only whole tiles have a fingerprint */
#define FINGERPRINT_LANES 32
#define FINGERPRINT_STRETCH 64 /* tiles */
#define FINGERPRINT_PASSES 4
#define FINGERPRINT_WORDS 32 /* of a lane in a tile */
#define FINGERPRINT_FOLDS 5  /* halvings from 32 lanes to one */

struct fingerprint {
	uint64_t a, b; /* below 2^61 - 1 */
};

/* The argument of the kernel; fingerprint.ptx has the same layout. */
struct fingerprint_keys {
	uint32_t words[FINGERPRINT_WORDS + 2 * (FINGERPRINT_PASSES - 1)];
	uint64_t step[2];                    /* from one value of a lane to the next */
	uint64_t fold[2][FINGERPRINT_FOLDS]; /* of 1, 2, 4, 8, 16 lanes to as many */
};

struct fingerprint_secret {
	struct fingerprint_keys keys;
	uint64_t join[2]; /* from one stretch to the next */
};

/* Draws random keys. Returns false if the kernel has no random bytes yet. */
bool fingerprint_draw(struct fingerprint_secret *out);
/* The value of a stretch of at most FINGERPRINT_STRETCH tiles. Like the device's it is not fully
 * reduced modulo 2^61 - 1. */
struct fingerprint fingerprint_stretch(const struct fingerprint_keys *keys, const void *bytes,
                                       size_t tiles);
/* The fingerprint of n consecutive stretches with these values. */
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
