/* migration.c: managed memory is prefetched in bulk, to its device or to the host.
 *
 * We use streams of our own, so that neither captures nor the program's streams are concerned, and
 * prefetch in slices, so that the client thread never waits longer than it takes to submit one. A
 * batch has ended when its stream is empty: an event would come in a channel, which may be stopped
 * in mid-kernel.
 */
#include "memory/migration.h"

#include "base/fork.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "memory/kind.h"
#include "memory/ranges.h"
#include "tenant/tenant.h"
#include "work/contexts.h"

#include <stdlib.h>

#define SLICE (UINT64_C(256) << 20)
#define PARTS 32 /* no slice is larger than this fraction of what the job may have */
#define SMALLEST_SLICE (UINT64_C(2) << 20)
#define CALLS 64    /* the most calls of a batch, which together prefetch one slice */
#define IN_FLIGHT 2 /* batches in flight, so that the link is not idle between two */

/* The migration of a device's managed memory to the device, or to the host. The client thread uses
 * the fields that are not atomic within contexts_with() only, a thread whose context ends with
 * LOCK_CONTEXTS held, so never both at once. */
struct migration {
	CUdevice device;
	atomic_bool wanted;         /* it has begun and not ended */
	atomic_bool again;          /* it has to begin from the first span */
	atomic_bool stopped;        /* it begins no more batches */
	atomic_bool out;            /* to the host */
	_Atomic(CUcontext) context; /* of the streams */
	CUstream streams[IN_FLIGHT];
	unsigned int first, n_in_flight; /* batches */
	struct memory_span *spans;
	size_t n, next; /* spans in total, and the number of the next one */
	uint64_t done;  /* bytes of the next span that are submitted */
	uint64_t slice; /* bytes of a batch */
	uint64_t fits;  /* bytes for which the device has space left */
	bool submitted; /* the last step has submitted a batch */
};

static struct migration migrations[MAX_DEVICES];
static uint64_t restored; /* migrations_restored() */

/* -- a step; the client thread calls these within contexts_with() ------------------------- */

static CUstream next_stream(const struct migration *m)
{
	return m->streams[(m->first + m->n_in_flight) % IN_FLIGHT];
}

static void prefetch(const struct migration *m, CUdeviceptr base, size_t size)
{
	CUstream stream = next_stream(m);
	bool out = atomic_load(&m->out);
	CUmemLocation location = {.type =
	                              out ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
	                          .id = out ? 0 : m->device};

	/* If the program has freed the memory meanwhile this call fails, and nothing else. */
	if (REAL(cuMemPrefetchAsync_v2))
		REAL(cuMemPrefetchAsync_v2)(base, size, location, 0, stream);
	else if (REAL(cuMemPrefetchAsync))
		REAL(cuMemPrefetchAsync)(base, size, out ? CU_DEVICE_CPU : m->device, stream);
}

static bool more(const struct migration *m)
{
	return !atomic_load(&m->stopped) && m->next < m->n && m->spans[m->next].size <= m->fits;
}

/* Prefetches a part of the next span, no more than `most` bytes. Returns how many. */
static uint64_t prefetch_part(struct migration *m, uint64_t most)
{
	const struct memory_span *span = &m->spans[m->next];
	uint64_t left = span->size - m->done, n = left < most ? left : most;

	prefetch(m, span->base + m->done, n);
	restored += atomic_load(&m->out) ? 0 : n;
	m->done += n;
	if (m->done == span->size) {
		m->fits -= span->size;
		m->done = 0;
		m->next++;
	}
	return n;
}

static void submit_batch(struct migration *m)
{
	uint64_t left = m->slice;

	for (int i = 0; i < CALLS && left && more(m); i++)
		left -= prefetch_part(m, left);
	m->n_in_flight++;
	m->submitted = true;
}

static void end(struct migration *m)
{
	for (int i = 0; i < IN_FLIGHT; i++)
		if (m->streams[i])
			REAL(cuStreamDestroy_v2)(m->streams[i]);
	free(m->spans);
	*m = (struct migration){.device = m->device};
}

static bool begin(struct migration *m, CUcontext context)
{
	const uint8_t *uuid = device_uuid(m->device);
	uint64_t limit = uuid ? tenant_limit(uuid) : NO_LIMIT;

	if (limit == NO_LIMIT)
		return false;
	for (int i = 0; i < IN_FLIGHT; i++)
		if (REAL(cuStreamCreate)(&m->streams[i], CU_STREAM_NON_BLOCKING))
			return false;
	m->context = context;
	m->slice = SLICE < limit / PARTS ? SLICE : limit / PARTS;
	m->slice = m->slice < SMALLEST_SLICE ? SMALLEST_SLICE : m->slice;
	return true;
}

static void list(struct migration *m)
{
	free(m->spans);
	m->spans = memory_spans(MEMORY_managed, m->device, &m->n);
	m->next = 0;
	m->done = 0;
	m->fits = atomic_load(&m->out) ? NO_LIMIT : tenant_limit(device_uuid(m->device));
}

static void step_in(CUcontext context, void *argument)
{
	struct migration *m = argument;

	if (!m->context && (atomic_load(&m->stopped) || !begin(m, context))) {
		end(m);
		return;
	}
	if (atomic_exchange(&m->again, false))
		list(m);
	while (m->n_in_flight &&
	       REAL(cuStreamQuery)(m->streams[m->first]) != CUDA_ERROR_NOT_READY) {
		m->first = (m->first + 1) % IN_FLIGHT;
		m->n_in_flight--;
	}
	while (m->n_in_flight < IN_FLIGHT && more(m))
		submit_batch(m);
	if (!m->n_in_flight && !more(m))
		end(m);
}

static void end_in(CUcontext context)
{
	for (int d = 0; d < MAX_DEVICES; d++) {
		if (migrations[d].context != context)
			continue;
		for (int i = 0; i < IN_FLIGHT; i++)
			REAL(cuStreamSynchronize)(migrations[d].streams[i]);
		end(&migrations[d]);
	}
}

void migrations_context_ends(CUcontext context)
{
	for (int d = 0; d < MAX_DEVICES; d++) {
		if (migrations[d].context == context) {
			context_run_in(context, end_in);
			return;
		}
	}
}

/* -- all migrations ----------------------------------------------------------------------- */

void migration_begin(CUdevice device, bool out)
{
	migrations[device].device = device;
	atomic_store(&migrations[device].out, out);
	atomic_store(&migrations[device].stopped, false);
	atomic_store(&migrations[device].again, true);
	atomic_store(&migrations[device].wanted, true);
}

bool migration_step(CUdevice device)
{
	struct migration *m = &migrations[device];

	m->submitted = false;
	if (atomic_load(&m->wanted) && !contexts_with(device, m->context, step_in, m))
		atomic_store(&m->wanted, false);
	return m->submitted;
}

bool migrations_go_on(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		if (atomic_load(&migrations[d].wanted))
			return true;
	return false;
}

void migrations_stop(bool out_only)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		if (!out_only || atomic_load(&migrations[d].out))
			atomic_store(&migrations[d].stopped, true);
}

uint64_t migrations_restored(void)
{
	uint64_t bytes = restored;

	restored = 0;
	return bytes;
}

static void in_child(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		migrations[d] = (struct migration){0}; /* it is the parent's */
}
FORK_WATCH(in_child);
