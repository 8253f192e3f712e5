/* slabs.c: small allocations share a block that has one segment.
 *
 * An allocation gets the first free units that fit. A unit has 512 bytes, the driver's alignment,
 * and two bits: whether it is used, and whether an allocation begins there. A lane's first slab
 * is the smallest possible block. Each further one is as large as all before together, up to a
 * piece.
 */
#include "memory/swap/slabs.h"

#include "base/locks.h"
#include "base/runs.h"
#include "memory/swap/lane.h"

#include <stdlib.h>

#define SLAB_UNIT 512

struct slab {
	struct slab *next;
	struct block *block;
	size_t n, n_free; /* units */
	uint64_t *used, *begins;
};

static size_t units(size_t size)
{
	return (size + SLAB_UNIT - 1) / SLAB_UNIT;
}

/* The caller holds swap_lock. */
static bool take(struct slab *slab, size_t n, CUdeviceptr *out)
{
	size_t at = slab->n_free < n ? slab->n : run_find(slab->used, slab->n, n);

	if (at == slab->n)
		return false;
	run_set(slab->used, at, n, true);
	run_set(slab->begins, at, 1, true);
	slab->n_free -= n;
	*out = slab->block->base + at * SLAB_UNIT;
	return true;
}

bool slab_take(struct lane *lane, size_t size, CUdeviceptr *out)
{
	bool taken = false;

	lock_take(&swap_lock);
	for (struct slab *slab = lane->slabs; slab && !taken; slab = slab->next)
		taken = take(slab, units(size), out);
	lock_give(&swap_lock);
	return taken;
}

bool slab_give(struct slab *slab, CUdeviceptr pointer, size_t size)
{
	size_t at = (pointer - slab->block->base) / SLAB_UNIT, n = units(size);

	run_set(slab->used, at, n, false);
	run_set(slab->begins, at, 1, false);
	slab->n_free += n;
	return slab->n_free == slab->n;
}

CUdeviceptr slab_start(struct slab *slab, CUdeviceptr pointer)
{
	size_t i = (pointer - slab->block->base) / SLAB_UNIT;

	while (i && run_bit(slab->used, i) && !run_bit(slab->begins, i))
		i--;
	return run_bit(slab->begins, i) ? slab->block->base + i * SLAB_UNIT : 0;
}

size_t slab_next_size(const struct lane *lane)
{
	size_t size = 0;

	lock_take(&swap_lock);
	for (const struct slab *slab = lane->slabs; slab; slab = slab->next)
		size += slab->block->size;
	lock_give(&swap_lock);
	return size < lane->unit ? lane->unit : size > lane->piece ? lane->piece : size;
}

CUresult slab_add(struct block *block)
{
	struct lane *lane = block->lane;
	size_t n = block->size / SLAB_UNIT, words = run_words(n);
	struct slab *slab = calloc(1, sizeof(*slab) + 2 * words * sizeof(uint64_t));

	if (!slab)
		return CUDA_ERROR_OUT_OF_MEMORY;
	slab->n = slab->n_free = n;
	slab->used = (uint64_t *)(slab + 1);
	slab->begins = slab->used + words;
	slab->block = block;
	lock_take(&swap_lock);
	block->slab = slab;
	slab->next = lane->slabs;
	lane->slabs = slab;
	lock_give(&swap_lock);
	return CUDA_SUCCESS;
}

void slab_forget(struct block *block)
{
	for (struct slab **at = &block->lane->slabs; *at; at = &(*at)->next) {
		if (*at == block->slab) {
			*at = block->slab->next;
			break;
		}
	}
	free(block->slab);
	block->slab = NULL;
}
