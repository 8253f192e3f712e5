/* copier.c: copies the segments of a device to the host and back.
 *
 * Each device has a stream of our own with a few copies in flight, so that segments are mapped or
 * unmapped while the bytes of others are being copied. Where one process evicts and another
 * restores, each evicted piece makes space for a restored one.
 */
#include "memory/swap/copier.h"

#include "driver/lookup.h"
#include "memory/swap/lane.h"
#include "work/contexts.h"

#define SLICE (UINT64_C(4) << 20) /* bytes: the most that one call copies to the host */

bool copier_prepare(struct copier *c, CUcontext context)
{
	if (c->context)
		return c->context == context;
	if (REAL(cuStreamCreate)(&c->stream, CU_STREAM_NON_BLOCKING))
		return false;
	c->context = context;
	return true;
}

static void prepare_in(CUcontext context, void *copier)
{
	copier_prepare(copier, context);
}

bool copier_can_copy(struct copier *c)
{
	return contexts_with(c->device, c->context, prepare_in, c) && c->context;
}

static struct transfer *nth(struct copier *c, unsigned int n)
{
	return &c->ring[(c->first + n) % COPIER_DEPTH];
}

/* Copies to the host go in slices, because a call of the driver's that gives access to a mapping
 * waits until the copy that runs has ended. */
static CUresult submit_part(const struct copier *c, struct part part, CUdeviceptr at, bool out)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t done = 0, n; done < part.size && !result; done += n) {
		n = out && part.size - done > SLICE ? SLICE : part.size - done;
		result =
		    out ? DRIVER(cuMemcpyDtoHAsync_v2)(part.at + done, at + done, n, c->stream)
		        : DRIVER(cuMemcpyHtoDAsync_v2)(at + done, part.at + done, n, c->stream);
	}
	return result;
}

/* A part is pinned while the one before is being copied. */
static CUresult submit(const struct copier *c, struct transfer *transfer)
{
	const struct segment *segment = transfer->segment;
	const struct copy *copy = segment->copy;
	CUdeviceptr at = segment->base;
	CUresult result = CUDA_SUCCESS;

	for (unsigned int i = 0; i < copy->n && !result; at += copy->parts[i++].size) {
		copy->store->pin(&copy->parts[i]);
		result = submit_part(c, copy->parts[i], at, transfer->out);
	}
	if (!result && !transfer->event)
		result = REAL(cuEventCreate)(&transfer->event, CU_EVENT_DISABLE_TIMING);
	return result ? result : REAL(cuEventRecord)(transfer->event, c->stream);
}

CUresult copier_begin(struct copier *c, struct segment *segment, bool out)
{
	struct transfer *transfer = nth(c, c->n);
	CUresult result;

	transfer->segment = segment;
	transfer->out = out;
	result = submit(c, transfer);
	if (result) {
		REAL(cuStreamSynchronize)(c->stream);
		return result;
	}
	c->n++;
	c->in_flight += segment->size;
	return CUDA_SUCCESS;
}

/* Returns whether the copy has ended. */
static bool look(struct transfer *transfer)
{
	transfer->result = REAL(cuEventQuery)(transfer->event);
	return transfer->result != CUDA_ERROR_NOT_READY;
}

void copier_look(struct copier *c)
{
	for (; c->copied < c->n && look(nth(c, c->copied)); c->copied++)
		c->copied_bytes += nth(c, c->copied)->segment->size;
}

bool copier_take(struct copier *c, struct transfer *out)
{
	if (!c->copied)
		return false;
	*out = *nth(c, 0);
	c->first = (c->first + 1) % COPIER_DEPTH;
	c->n--;
	c->copied--;
	c->in_flight -= out->segment->size;
	c->copied_bytes -= out->segment->size;
	return true;
}

bool copier_restores(const struct copier *c)
{
	for (unsigned int i = 0; i < c->n; i++)
		if (!c->ring[(c->first + i) % COPIER_DEPTH].out)
			return true;
	return false;
}

void copier_end(struct copier *c)
{
	for (int i = 0; i < COPIER_DEPTH; i++) {
		if (c->ring[i].event)
			REAL(cuEventDestroy_v2)(c->ring[i].event);
		c->ring[i].event = NULL;
	}
	REAL(cuStreamDestroy_v2)(c->stream);
	c->context = NULL;
}
