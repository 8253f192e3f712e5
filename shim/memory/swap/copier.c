/* copier.c: copies the segments of a device to the host and back.
 *
 * Each device has a stream of our own with a few copies in flight, so that segments are mapped or
 * unmapped while the bytes of others are being copied. Where one process evicts and another
 * restores, each evicted piece makes space for a restored one.
 */
#include "memory/swap/copier.h"

#include "base/debug.h"
#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "gate/gate.h"
#include "memory/swap/devices.h"
#include "work/contexts.h"

#define SLICE (UINT64_C(4) << 20) /* bytes: the most that one call copies to the host */

struct copier copiers[MAX_DEVICES];
struct swap_progress swap_progress;

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

bool copier_can_copy(CUdevice device)
{
	struct copier *c = &copiers[device];

	return contexts_with(device, c->context, prepare_in, c) && c->context;
}

CUresult copier_record(struct copier *c, struct segment *segment, bool out)
{
	struct transfer *transfer = &c->ring[(c->first + c->n) % SWAP_DEPTH];
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

/* Copies to the host go in slices, because a call of the driver's that gives access to a mapping
 * waits until the copy that runs has ended. */
CUresult copier_copy(struct copier *c, struct segment *segment, bool out)
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

/* The gate opens all the same: the program's next call returns what is wrong with its context. */
void swap_restore_failed(CUresult error)
{
	if (!swap_progress.restore_failed)
		complain(
		    "swapped memory cannot be restored to the GPU (CUDA error %d), so calls that "
		    "use it fail; start the job again, and if that does not help, ask the "
		    "administrator to look at the node's GPU (dmesg)",
		    (int)error);
	swap_progress.restore_failed = true;
}

void copier_end(struct copier *c)
{
	for (int i = 0; i < SWAP_DEPTH; i++) {
		if (c->ring[i].event)
			REAL(cuEventDestroy_v2)(c->ring[i].event);
		c->ring[i].event = NULL;
	}
	REAL(cuStreamDestroy_v2)(c->stream);
	c->context = NULL;
}

static void in_child(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		copiers[d] = (struct copier){0};
	swap_progress = (struct swap_progress){0};
}
FORK_WATCH(in_child);
