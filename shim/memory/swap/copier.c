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
static CUresult submit(struct copier *c, struct segment *segment, bool out)
{
	CUdeviceptr at = segment->base;
	CUresult result;

	segment->copy->store->pin(segment->copy);
	for (unsigned int i = 0; i < segment->copy->n; i++) {
		struct part part = segment->copy->parts[i];

		for (size_t done = 0, n; done < part.size; done += n) {
			n = out && part.size - done > SLICE ? SLICE : part.size - done;
			result =
			    out ? DRIVER(cuMemcpyDtoHAsync_v2)(part.at + done, at, n, c->stream)
			        : DRIVER(cuMemcpyHtoDAsync_v2)(at, part.at + done, n, c->stream);
			if (result)
				return result;
			at += n;
		}
	}
	return CUDA_SUCCESS;
}

/* Once the event has happened the bytes are copied. */
static CUresult record(struct copier *c, struct segment *segment, bool out)
{
	struct transfer *transfer = nth(c, c->n);
	CUresult result;

	if (!transfer->event) {
		result = REAL(cuEventCreate)(&transfer->event, CU_EVENT_DISABLE_TIMING);
		if (result)
			return result;
	}
	result = REAL(cuEventRecord)(transfer->event, c->stream);
	if (result)
		return result;
	transfer->segment = segment;
	transfer->out = out;
	c->n++;
	c->in_flight += segment->size;
	return CUDA_SUCCESS;
}

CUresult copier_begin(struct copier *c, struct segment *segment, bool out)
{
	CUresult result = submit(c, segment, out);

	if (!result)
		result = record(c, segment, out);
	if (result)
		REAL(cuStreamSynchronize)(c->stream);
	return result;
}

void copier_look(struct copier *c)
{
	for (; c->copied < c->n; c->copied++) {
		struct transfer *transfer = nth(c, c->copied);

		transfer->result = REAL(cuEventQuery)(transfer->event);
		if (transfer->result == CUDA_ERROR_NOT_READY)
			return;
		c->copied_bytes += transfer->segment->size;
	}
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
