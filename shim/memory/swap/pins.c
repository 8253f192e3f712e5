/* pins.c: registers chunks with the driver, slice by slice.
 *
 * The driver registers 10 to 20 GiB in a second. The calling thread does nothing else meanwhile: a
 * slice of 32 MiB takes about 3 ms.
 */
#include "memory/swap/pins.h"

#include "base/fork.h"
#include "driver/lookup.h"

#define SMALLEST_SLICE ((UINT64_C(32) << 20) / CHUNK_UNIT) /* units */

static size_t n_lost_pins; /* chunks with `lost_pins`; under chunks_lock */

size_t chunk_slice(const struct chunk *chunk)
{
	size_t units = (chunk->n + CHUNK_SLICES - 1) / CHUNK_SLICES;

	return units > SMALLEST_SLICE ? units : SMALLEST_SLICE;
}

/* The number of the first slice that is not registered. */
static size_t next_slice(const struct chunk *chunk)
{
	size_t slice = 0;

	while (slice * chunk_slice(chunk) < chunk->n && chunk->contexts[slice])
		slice++;
	return slice;
}

bool chunk_pinned(const struct chunk *chunk)
{
	return next_slice(chunk) * chunk_slice(chunk) >= chunk->n;
}

static void set_lost_pins(struct chunk *chunk, bool lost)
{
	n_lost_pins += lost;
	n_lost_pins -= chunk->lost_pins;
	chunk->lost_pins = lost;
}

bool chunk_pin_slice(struct chunk *chunk)
{
	size_t slice = next_slice(chunk), first = slice * chunk_slice(chunk);
	size_t left = first < chunk->n ? chunk->n - first : 0;
	size_t n = left < chunk_slice(chunk) ? left : chunk_slice(chunk);
	CUcontext context = NULL;

	if (!n)
		return true;
	if (!REAL(cuMemHostRegister_v2) || REAL(cuCtxGetCurrent)(&context) || !context ||
	    REAL(cuMemHostRegister_v2)(chunk->base + first * CHUNK_UNIT, n * CHUNK_UNIT,
	                               CU_MEMHOSTREGISTER_PORTABLE))
		return false;
	chunk->contexts[slice] = context;
	if (chunk_pinned(chunk))
		set_lost_pins(chunk, false);
	return true;
}

bool chunk_pin(struct chunk *chunk)
{
	while (!chunk_pinned(chunk))
		if (!chunk_pin_slice(chunk))
			return false;
	return true;
}

static void unpin(struct chunk *chunk, size_t slice)
{
	REAL(cuMemHostUnregister)(chunk->base + slice * chunk_slice(chunk) * CHUNK_UNIT);
	chunk->contexts[slice] = NULL;
}

void chunk_unpin(struct chunk *chunk)
{
	for (size_t slice = 0; slice < CHUNK_SLICES; slice++)
		if (chunk->contexts[slice])
			unpin(chunk, slice);
	set_lost_pins(chunk, false);
}

void chunk_context_ends(struct chunk *chunk, CUcontext context)
{
	for (size_t slice = 0; slice < CHUNK_SLICES; slice++) {
		if (chunk->contexts[slice] == context) {
			unpin(chunk, slice);
			set_lost_pins(chunk, true);
		}
	}
}

bool chunks_lost_pins(void)
{
	return n_lost_pins > 0;
}

static void in_child(void)
{
	n_lost_pins = 0; /* the chunks are the parent's */
}
FORK_WATCH(in_child);
