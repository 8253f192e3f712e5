/* managed.c: memory that the driver moves, page by page as it is touched.
 *
 * At a grant it is brought back in bulk, which is several times as fast. On a stream of
 * our own, which captures and the program's streams do not touch, and in slices, so
 * that the client thread never waits for more than it takes to submit one.
 */
#include "base/fork.h"
#include "base/wire.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "memory/ranges.h"
#include "tenant/tenant.h"
#include "work/contexts.h"

#include <stdlib.h>

#define SLICE (UINT64_C(256) << 20)
#define PARTS 32 /* of what a job may have: no slice is larger */
#define SMALLEST_SLICE (UINT64_C(2) << 20)
#define CALLS 64    /* of a batch; */
#define IN_FLIGHT 2 /* batches, so that the link is not idle between two */
#define PAUSE_NS 50000
#define LONGEST_PAUSE_NS 1000000

/* One device's memory on its way back, or to the host. The client thread touches it within
 * contexts_with() only, where no context ends; a thread whose context ends has the same lock. */
struct refill {
	CUdevice device;
	atomic_bool wanted;         /* there is something to do, */
	atomic_bool again;          /* from the beginning; */
	atomic_bool stopped;        /* nothing more of it */
	atomic_bool out;            /* to the host */
	_Atomic(CUcontext) context; /* of the stream and the events */
	CUstream stream;
	CUevent events[IN_FLIGHT];
	unsigned int first, n_in_flight; /* batches */
	struct memory_span *spans;
	size_t n, next; /* of the spans */
	uint64_t done;  /* bytes of the next one */
	uint64_t slice, fits;
};

static struct refill refills[MAX_DEVICES];
static uint64_t asked;   /* bytes that the last grant named */
static uint64_t fetched; /* bytes since then */
static int64_t pause_ns;

/* -- allocating ------------------------------------------------------------------------ */

static bool serves(CUdevice device)
{
	(void)device;
	return DRIVER(cuMemAllocManaged) != NULL;
}

static CUresult allocate(CUdeviceptr *out, size_t size, CUdevice device)
{
	(void)device;
	return DRIVER(cuMemAllocManaged)(out, size, CU_MEM_ATTACH_GLOBAL);
}

static CUresult free_managed(CUdeviceptr base, const struct memory_range *range, bool wait)
{
	(void)range;
	(void)wait; /* the driver does */
	return DRIVER(cuMemFree_v2)(base);
}

static void report(CUdevice device, struct gl_device *out)
{
	out->bytes += memory_counted(MEMORY_managed, device);
}

/* -- bringing it back -------------------------------------------------------------------- */

static void prefetch(const struct refill *r, CUdeviceptr base, size_t size)
{
	bool out = atomic_load(&r->out);
	CUmemLocation location = {.type =
	                              out ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
	                          .id = out ? 0 : r->device};

	/* What the program has freed meanwhile is an error of that call alone. */
	if (REAL(cuMemPrefetchAsync_v2))
		REAL(cuMemPrefetchAsync_v2)(base, size, location, 0, r->stream);
	else if (REAL(cuMemPrefetchAsync))
		REAL(cuMemPrefetchAsync)(base, size, out ? CU_DEVICE_CPU : r->device, r->stream);
}

static bool more(const struct refill *r)
{
	return !atomic_load(&r->stopped) && r->next < r->n && r->spans[r->next].size <= r->fits;
}

/* Bytes of the next span, no more than `most`. */
static uint64_t prefetch_part(struct refill *r, uint64_t most)
{
	const struct memory_span *span = &r->spans[r->next];
	uint64_t left = span->size - r->done, n = left < most ? left : most;

	prefetch(r, span->base + r->done, n);
	fetched += atomic_load(&r->out) ? 0 : n;
	r->done += n;
	if (r->done == span->size) {
		r->fits -= span->size;
		r->done = 0;
		r->next++;
	}
	return n;
}

static void submit_batch(struct refill *r)
{
	uint64_t left = r->slice;

	for (int i = 0; i < CALLS && left && more(r); i++)
		left -= prefetch_part(r, left);
	/* Without an event nobody would know when it is over. */
	if (REAL(cuEventRecord)(r->events[(r->first + r->n_in_flight) % IN_FLIGHT], r->stream))
		atomic_store(&r->stopped, true);
	else
		r->n_in_flight++;
	pause_ns = PAUSE_NS;
}

static void end(struct refill *r)
{
	for (int i = 0; i < IN_FLIGHT; i++)
		if (r->events[i])
			REAL(cuEventDestroy_v2)(r->events[i]);
	if (r->stream)
		REAL(cuStreamDestroy_v2)(r->stream);
	free(r->spans);
	*r = (struct refill){.device = r->device};
}

static bool begin(struct refill *r, CUcontext context)
{
	const uint8_t *uuid = device_uuid(r->device);
	uint64_t limit = uuid ? tenant_limit(uuid) : NO_LIMIT;

	if (limit == NO_LIMIT || REAL(cuStreamCreate)(&r->stream, CU_STREAM_NON_BLOCKING))
		return false;
	r->context = context;
	for (int i = 0; i < IN_FLIGHT; i++)
		if (REAL(cuEventCreate)(&r->events[i], CU_EVENT_DISABLE_TIMING))
			return false;
	r->slice = SLICE < limit / PARTS ? SLICE : limit / PARTS;
	r->slice = r->slice < SMALLEST_SLICE ? SMALLEST_SLICE : r->slice;
	return true;
}

static void list(struct refill *r)
{
	free(r->spans);
	r->spans = memory_spans(MEMORY_managed, r->device, &r->n);
	r->next = 0;
	r->done = 0;
	r->fits = atomic_load(&r->out) ? NO_LIMIT : tenant_limit(device_uuid(r->device));
}

static void step_in(CUcontext context, void *argument)
{
	struct refill *r = argument;

	if (!r->context && (atomic_load(&r->stopped) || !begin(r, context))) {
		end(r);
		return;
	}
	if (atomic_exchange(&r->again, false))
		list(r);
	while (r->n_in_flight && REAL(cuEventQuery)(r->events[r->first]) != CUDA_ERROR_NOT_READY) {
		r->first = (r->first + 1) % IN_FLIGHT;
		r->n_in_flight--;
	}
	while (r->n_in_flight < IN_FLIGHT && more(r))
		submit_batch(r);
	if (!r->n_in_flight && !more(r))
		end(r);
}

static void end_in(CUcontext context)
{
	for (int d = 0; d < MAX_DEVICES; d++) {
		if (refills[d].context != context)
			continue;
		REAL(cuStreamSynchronize)(refills[d].stream);
		end(&refills[d]);
	}
}

static void context_ends(CUcontext context)
{
	for (int d = 0; d < MAX_DEVICES; d++) {
		if (refills[d].context == context) {
			context_run_in(context, end_in);
			return;
		}
	}
}

/* -- as the lease asks ---------------------------------------------------------------------- */

static void begin_moving(CUdevice device, bool out)
{
	refills[device].device = device;
	atomic_store(&refills[device].out, out);
	atomic_store(&refills[device].stopped, false);
	atomic_store(&refills[device].again, true);
	atomic_store(&refills[device].wanted, true);
}

/* What was leaving stays where it is. */
static void end_leaving(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		if (atomic_load(&refills[d].out))
			atomic_store(&refills[d].stopped, true);
}

static void refill(const struct gl_grant *grant)
{
	asked = fetched = 0;
	pause_ns = PAUSE_NS;
	end_leaving();
	for (uint32_t i = 0; grant && i < grant->n_devices && i < GL_MAX_DEVICES; i++) {
		CUdevice device = device_of(grant->devices[i].uuid);

		if (!grant->devices[i].bytes || device < 0)
			continue;
		asked += grant->devices[i].bytes;
		begin_moving(device, false);
	}
}

static void leave(void)
{
	pause_ns = PAUSE_NS;
	for (int d = 0; d < MAX_DEVICES; d++)
		if (memory_counted(MEMORY_managed, d))
			begin_moving(d, true);
}

static bool restored(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		if (atomic_load(&refills[d].wanted))
			return false;
	return true;
}

static bool step(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		if (atomic_load(&refills[d].wanted) &&
		    !contexts_with(d, refills[d].context, step_in, &refills[d]))
			atomic_store(&refills[d].wanted, false);
	if (pause_ns < LONGEST_PAUSE_NS)
		pause_ns *= 2;
	return !restored();
}

static int64_t pause_for(void)
{
	return pause_ns;
}

static void stop(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		atomic_store(&refills[d].stopped, true);
}

static struct moved brought(void)
{
	return (struct moved){fetched < asked ? fetched : asked, 0};
}

static const struct mover mover = {
    .restore = refill,
    .restored = restored,
    .refill = refill,
    .leave = leave,
    .step = step,
    .pause_ns = pause_for,
    .stop = stop,
    .brought = brought,
};

static void in_child(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		refills[d] = (struct refill){0}; /* the parent's */
}
FORK_WATCH(in_child);

const struct memory_kind managed_memory = {
    .name = "managed",
    .row = MEMORY_managed,
    .serves = serves,
    .allocate = allocate,
    .free = free_managed,
    .report = report,
    .context_ends = context_ends,
    .mover = &mover,
};
