/* memory.c: what this process has on each device, and bringing it back at a grant. */
#include "memory/memory.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096
#define LAST_DEVICE(d) ((d) >= 0 && (d) < MAX_DEVICES)

struct range {
	struct range *next;
	CUdeviceptr base;
	struct memory_range is;
	unsigned long number; /* allocations are counted */
};

static struct range *buckets[BUCKETS];
static uint64_t bytes[MAX_DEVICES][3]; /* by enum memory_kind */
static unsigned long allocations;
static uint8_t uuids[MAX_DEVICES][GL_UUID_BYTES];
static atomic_bool uuid_known[MAX_DEVICES];
static struct lock lock = LOCK(LOCK_MEMORY);

static struct range **bucket_of(CUdeviceptr base)
{
	return &buckets[(base >> 9) * UINT64_C(0x9E3779B97F4A7C15) >> 52];
}

static bool ask_uuid(CUdevice device, CUuuid *out)
{
	if (REAL(cuDeviceGetUuid_v2))
		return !REAL(cuDeviceGetUuid_v2)(out, device);
	return REAL(cuDeviceGetUuid) && !REAL(cuDeviceGetUuid)(out, device);
}

/* The driver is asked without the lock: to find its functions may take the loader's. */
const uint8_t *device_uuid(CUdevice device)
{
	CUuuid uuid;

	if (!LAST_DEVICE(device))
		return NULL;
	if (atomic_load(&uuid_known[device]))
		return uuids[device];
	if (!ask_uuid(device, &uuid))
		return NULL;
	lock_take(&lock);
	memcpy(uuids[device], uuid.bytes, GL_UUID_BYTES);
	atomic_store(&uuid_known[device], true);
	lock_give(&lock);
	return uuids[device];
}

CUdevice device_of(const uint8_t uuid[16])
{
	for (int d = 0; d < MAX_DEVICES; d++)
		if (uuid_known[d] && !memcmp(uuids[d], uuid, GL_UUID_BYTES))
			return d;
	return -1;
}

void memory_count(CUdevice device, enum memory_kind kind, int64_t n)
{
	if (!LAST_DEVICE(device))
		return;
	lock_take(&lock);
	bytes[device][kind] += (uint64_t)n;
	lock_give(&lock);
	client_memory_changed();
}

void memory_add(CUdeviceptr base, size_t size, CUdevice device, enum memory_kind kind,
                CUmemoryPool pool)
{
	struct range *range = malloc(sizeof(*range));
	CUcontext context = NULL;

	if (!range || !LAST_DEVICE(device)) {
		free(range);
		if (kind != MEMORY_SWAPPED)
			limit_give(device, size);
		return;
	}
	REAL(cuCtxGetCurrent)(&context);
	lock_take(&lock);
	*range = (struct range){.next = *bucket_of(base),
	                        .base = base,
	                        .is = {size, device, kind, pool, context, false},
	                        .number = allocations++};
	*bucket_of(base) = range;
	lock_give(&lock);
	memory_count(device, kind, (int64_t)size);
}

bool memory_find(CUdeviceptr base, struct memory_range *out)
{
	bool found = false;

	lock_take(&lock);
	for (struct range *r = *bucket_of(base); r && !found; r = r->next) {
		found = r->base == base;
		if (found)
			*out = r->is;
	}
	lock_give(&lock);
	return found;
}

static void uncount(struct range *range)
{
	if (range->is.kind != MEMORY_SWAPPED)
		limit_give(range->is.device, range->is.size);
	memory_count(range->is.device, range->is.kind, -(int64_t)range->is.size);
	free(range);
}

bool memory_remove(CUdeviceptr base, struct memory_range *out)
{
	struct range *range = NULL;

	lock_take(&lock);
	for (struct range **at = bucket_of(base); *at; at = &(*at)->next) {
		if ((*at)->base == base) {
			range = *at;
			*at = range->next;
			break;
		}
	}
	lock_give(&lock);
	if (!range)
		return false;
	if (out)
		*out = range->is;
	uncount(range);
	return true;
}

bool memory_set_freed(CUdeviceptr base, bool freed, struct memory_range *out)
{
	bool news = false;

	lock_take(&lock);
	for (struct range *r = *bucket_of(base); r && !news; r = r->next) {
		news = r->base == base && r->is.freed != freed;
		if (news) {
			r->is.freed = freed;
			*out = r->is;
		}
	}
	lock_give(&lock);
	return news;
}

void memory_forget_pool(CUmemoryPool pool)
{
	lock_take(&lock);
	for (int b = 0; b < BUCKETS; b++)
		for (struct range *r = buckets[b]; r; r = r->next)
			if (r->is.pool == pool)
				r->is.pool = NULL;
	lock_give(&lock);
}

void memory_forget(CUcontext context)
{
	struct range *gone = NULL;

	lock_take(&lock);
	for (int b = 0; b < BUCKETS; b++) {
		for (struct range **at = &buckets[b]; *at;) {
			struct range *range = *at;

			if (range->is.context != context) {
				at = &range->next;
				continue;
			}
			*at = range->next;
			range->next = gone;
			gone = range;
		}
	}
	lock_give(&lock);
	while (gone) {
		struct range *range = gone;

		gone = range->next;
		if (range->is.kind == MEMORY_SWAPPED)
			swap_free(range->base, &range->is, false);
		uncount(range);
	}
}

static bool ask_for_room(struct wanted_room *wanted, CUdevice device, uint64_t size)
{
	if (!size || !device_uuid(device))
		return false;
	wanted->bytes = (int64_t)size;
	memory_count(device, MEMORY_FIXED, wanted->bytes);
	debug("device %d has no room for %llu KiB; others shall make some", device,
	      (unsigned long long)size >> 10);
	return true;
}

/* True: try again. The lease says that others have been told, not yet that they are gone. */
bool room_appears(struct wanted_room *wanted, CUresult result, CUdevice device, uint64_t size)
{
	bool more = result == CUDA_ERROR_OUT_OF_MEMORY &&
	            (wanted->bytes || ask_for_room(wanted, device, size)) &&
	            !client_need_lease(false);

	if (more && !wanted->since)
		wanted->since = now_ns();
	if (more && now_ns() - wanted->since < ROOM_NS) {
		pause_us(ROOM_PAUSE_US);
		return true;
	}
	if (wanted->bytes)
		memory_count(device, MEMORY_FIXED, -wanted->bytes);
	return false;
}

/* Memory nodes of graphs: the driver's, plain, and only it knows how much. */
static uint64_t graph_memory(CUdevice device)
{
	cuuint64_t reserved = 0;

	if (!contexts_exist() || !REAL(cuDeviceGetGraphMemAttribute) ||
	    REAL(cuDeviceGetGraphMemAttribute)(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
	                                       &reserved))
		return 0;
	return reserved;
}

uint32_t memory_report(struct gl_device out[GL_MAX_DEVICES])
{
	uint32_t n = 0;

	for (int d = 0; d < MAX_DEVICES && n < GL_MAX_DEVICES; d++) {
		if (!uuid_known[d])
			continue;
		memcpy(out[n].uuid, uuids[d], GL_UUID_BYTES);
		out[n].fixed = graph_memory(d);
		lock_take(&lock);
		out[n].bytes = bytes[d][MEMORY_MANAGED];
		out[n].fixed += bytes[d][MEMORY_FIXED];
		lock_give(&lock);
		swap_report(d, &out[n]);
		n++;
	}
	return n;
}

static void prefetch_range(const struct range *range, CUstream stream)
{
	CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = range->is.device};

	if (REAL(cuMemPrefetchAsync_v2))
		REAL(cuMemPrefetchAsync_v2)(range->base, range->is.size, location, 0, stream);
	else if (REAL(cuMemPrefetchAsync))
		REAL(cuMemPrefetchAsync)(range->base, range->is.size, range->is.device, stream);
}

static int newest_first(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return (x->number < y->number) - (x->number > y->number);
}

/* A copy of the managed ranges of a device, newest first: of what fits not
 * whole, a program is likelier to be at what it made last. */
static struct range *ranges_of(CUdevice device, size_t *n)
{
	struct range *list = NULL;
	size_t room = 0;

	*n = 0;
	lock_take(&lock);
	for (int b = 0; b < BUCKETS; b++) {
		for (struct range *r = buckets[b]; r; r = r->next) {
			if (r->is.kind != MEMORY_MANAGED || r->is.device != device)
				continue;
			if (*n == room) {
				struct range *more;

				room = room ? 2 * room : 256;
				more = realloc(list, room * sizeof(*list));
				if (!more)
					goto full; /* the rest comes by faults */
				list = more;
			}
			list[(*n)++] = *r;
		}
	}
full:
	lock_give(&lock);
	if (*n)
		qsort(list, *n, sizeof(*list), newest_first);
	return list;
}

/* On a stream of our own, which captures and the program's streams do not
 * touch. A range that the program frees meanwhile is an error of that call alone. */
static void prefetch_device(CUcontext context, void *argument)
{
	CUdevice device = *(CUdevice *)argument;
	uint64_t fits = client_limit(uuids[device]);
	struct range *list;
	CUstream stream;
	size_t n;

	(void)context;
	if (fits == NO_LIMIT || REAL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING))
		return;
	list = ranges_of(device, &n);
	for (size_t i = 0; i < n && list[i].is.size <= fits; i++) {
		prefetch_range(&list[i], stream);
		fits -= list[i].is.size;
	}
	free(list);
	REAL(cuStreamSynchronize)(stream);
	REAL(cuStreamDestroy_v2)(stream);
}

uint64_t memory_prefetch(const struct gl_grant *grant)
{
	uint64_t asked = 0;

	for (uint32_t i = 0; i < grant->n_devices && i < GL_MAX_DEVICES; i++) {
		CUdevice device = device_of(grant->devices[i].uuid);

		if (!grant->devices[i].bytes || device < 0)
			continue;
		contexts_with(device, NULL, prefetch_device, &device);
		asked += grant->devices[i].bytes;
	}
	return asked;
}

void memory_after_fork(void)
{
	lock_after_fork(&lock);
	memset(buckets, 0, sizeof(buckets)); /* the parent's; nothing of it is ours */
	memset(bytes, 0, sizeof(bytes));
}
