/* kernels.c: the built-in kernels, one block of memory at a time.
 *
 * kernels.ptx has the same functions for a real GPU.
 */
#include "engine/engine.h"

static void fill(uint32_t *words, uint64_t first, uint64_t n, uint32_t value)
{
	for (uint64_t i = 0; i < n; i++)
		words[i] = value + (uint32_t)(first + i) * UINT32_C(2654435761);
}

/* `rounds` times the same sum, computed once; the time is that of all rounds. */
uint32_t add_value(const uint64_t *arg)
{
	return (uint32_t)arg[2] * (uint32_t)arg[3];
}

void add_words(uint32_t *words, uint64_t n, uint32_t value)
{
	for (uint64_t i = 0; i < n; i++)
		words[i] += value;
}

/* Sum of word[i] * (i % 65521 + 1), mod 2^64: any word moved or changed shows. */
static uint64_t checksum(const uint32_t *words, uint64_t first, uint64_t n)
{
	uint64_t sum = 0, weight = first % 65521 + 1;

	for (uint64_t i = 0; i < n; i++) {
		sum += words[i] * weight;
		weight = weight == 65521 ? 1 : weight + 1;
	}
	return sum;
}

void kernel_block(enum emu_kernel kernel, const uint64_t *arg, uint32_t *words, uint64_t first,
                  uint64_t n, uint64_t *result)
{
	switch (kernel) {
	case EMU_FILL:
		fill(words, first, n, (uint32_t)arg[2]);
		break;
	case EMU_ADD:
		add_words(words, n, add_value(arg));
		break;
	case EMU_CHECKSUM:
		*result += checksum(words, first, n);
		break;
	default:
		break;
	}
}
