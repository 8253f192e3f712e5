/* slabs.c: small allocations share a block of one segment.
 *
 * First fit in units of 512 bytes, the driver's alignment, with a bit for each
 * unit that is used and one for each that begins an allocation. The first slab
 * is the smallest block there can be; further ones are as large as all before.
 * swap_lock is held in all of these but slab_next_size() and slab_add().
 */
#include "swap.h"

#include <stdlib.h>

#define SLAB_UNIT 512
#define WORD 64

struct slab {
	struct slab *next;
	struct block *block;
	size_t n, n_free; /* units */
	uint64_t *used, *begins;
};

static bool bit(const uint64_t *bits, size_t i)
{
	return bits[i / WORD] >> i % WORD & 1;
}

static void set_bits(uint64_t *bits, size_t first, size_t n, bool value)
{
	for (size_t i = first; i < first + n; i++) {
		uint64_t mask = UINT64_C(1) << i % WORD;

		bits[i / WORD] = value ? bits[i / WORD] | mask : bits[i / WORD] & ~mask;
	}
}

static size_t units(size_t size)
{
	return (size + SLAB_UNIT - 1) / SLAB_UNIT;
}

/* Where so many units in a row are free; slab->n: nowhere. Full words are passed over. */
static size_t find_run(const struct slab *slab, size_t n)
{
	size_t run = 0;

	for (size_t i = 0; i < slab->n; i++) {
		if (i % WORD == 0 && slab->used[i / WORD] == UINT64_MAX) {
			run = 0;
			i += WORD - 1;
			continue;
		}
		run = bit(slab->used, i) ? 0 : run + 1;
		if (run == n)
			return i + 1 - n;
	}
	return slab->n;
}

bool slab_take(CUdevice device, size_t size, CUdeviceptr *out)
{
	size_t n = units(size);

	for (struct slab *slab = swap_devices[device].slabs; slab; slab = slab->next) {
		size_t at = slab->n_free < n ? slab->n : find_run(slab, n);

		if (at == slab->n)
			continue;
		set_bits(slab->used, at, n, true);
		set_bits(slab->begins, at, 1, true);
		slab->n_free -= n;
		*out = slab->block->base + at * SLAB_UNIT;
		return true;
	}
	return false;
}

bool slab_give(struct slab *slab, CUdeviceptr pointer, size_t size)
{
	size_t at = (pointer - slab->block->base) / SLAB_UNIT, n = units(size);

	set_bits(slab->used, at, n, false);
	set_bits(slab->begins, at, 1, false);
	slab->n_free += n;
	return slab->n_free == slab->n;
}

CUdeviceptr slab_start(struct slab *slab, CUdeviceptr pointer)
{
	size_t i = (pointer - slab->block->base) / SLAB_UNIT;

	while (i && bit(slab->used, i) && !bit(slab->begins, i))
		i--;
	return bit(slab->begins, i) ? slab->block->base + i * SLAB_UNIT : 0;
}

size_t slab_next_size(CUdevice device)
{
	const struct swap_device *d = &swap_devices[device];
	size_t size = 0;

	pthread_mutex_lock(&swap_lock);
	for (const struct slab *slab = d->slabs; slab; slab = slab->next)
		size += slab->block->size;
	pthread_mutex_unlock(&swap_lock);
	return size < d->unit ? d->unit : size > d->piece ? d->piece : size;
}

CUresult slab_add(struct block *block)
{
	struct swap_device *d = &swap_devices[block->device];
	size_t n = block->size / SLAB_UNIT, words = (n + WORD - 1) / WORD;
	struct slab *slab = calloc(1, sizeof(*slab) + 2 * words * sizeof(uint64_t));

	if (!slab)
		return CUDA_ERROR_OUT_OF_MEMORY;
	slab->n = slab->n_free = n;
	slab->used = (uint64_t *)(slab + 1);
	slab->begins = slab->used + words;
	slab->block = block;
	pthread_mutex_lock(&swap_lock);
	block->slab = slab;
	slab->next = d->slabs;
	d->slabs = slab;
	pthread_mutex_unlock(&swap_lock);
	return CUDA_SUCCESS;
}

void slab_forget(struct block *block)
{
	for (struct slab **at = &swap_devices[block->device].slabs; *at; at = &(*at)->next) {
		if (*at == block->slab) {
			*at = block->slab->next;
			break;
		}
	}
	free(block->slab);
	block->slab = NULL;
}
