/* memory.c: what this process has on each device, and bringing it back at a grant. */
#include "memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUCKETS 4096
#define LAST_DEVICE(d) ((d) >= 0 && (d) < MAX_DEVICES)

struct range {
	struct range *next;
	CUdeviceptr base;
	size_t size;
	CUdevice device;
	bool managed;
};

static struct range *buckets[BUCKETS];
static uint64_t managed_bytes[MAX_DEVICES], fixed_bytes[MAX_DEVICES];
static uint8_t uuids[MAX_DEVICES][GL_UUID_BYTES];
static bool uuid_known[MAX_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct range **bucket_of(CUdeviceptr base)
{
	return &buckets[(base >> 9) * UINT64_C(0x9E3779B97F4A7C15) >> 52];
}

const uint8_t *device_uuid(CUdevice device)
{
	CUresult (*get)(CUuuid *, CUdevice);
	CUuuid uuid;

	if (!LAST_DEVICE(device))
		return NULL;
	pthread_mutex_lock(&lock);
	if (!uuid_known[device]) {
		get = (CUresult(*)(CUuuid *, CUdevice))real_symbol("cuDeviceGetUuid_v2");
		if (!get)
			get = (CUresult(*)(CUuuid *, CUdevice))real_symbol("cuDeviceGetUuid");
		if (get && !get(&uuid, device)) {
			memcpy(uuids[device], uuid.bytes, GL_UUID_BYTES);
			uuid_known[device] = true;
		}
	}
	pthread_mutex_unlock(&lock);
	return uuid_known[device] ? uuids[device] : NULL;
}

bool memory_add(CUdeviceptr base, size_t size, CUdevice device, bool managed)
{
	struct range *range = malloc(sizeof(*range));

	if (!range || !LAST_DEVICE(device)) {
		free(range);
		return false;
	}
	pthread_mutex_lock(&lock);
	*range = (struct range){*bucket_of(base), base, size, device, managed};
	*bucket_of(base) = range;
	*(managed ? &managed_bytes[device] : &fixed_bytes[device]) += size;
	pthread_mutex_unlock(&lock);
	client_memory_changed();
	return true;
}

bool memory_remove(CUdeviceptr base)
{
	struct range *range = NULL;

	pthread_mutex_lock(&lock);
	for (struct range **at = bucket_of(base); *at; at = &(*at)->next) {
		if ((*at)->base == base) {
			range = *at;
			*at = range->next;
			*(range->managed ? &managed_bytes[range->device]
			                 : &fixed_bytes[range->device]) -= range->size;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	if (range)
		client_memory_changed();
	free(range);
	return range != NULL;
}

bool memory_known(CUdeviceptr base)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (struct range *r = *bucket_of(base); r; r = r->next)
		found |= r->base == base;
	pthread_mutex_unlock(&lock);
	return found;
}

uint64_t memory_used(CUdevice device)
{
	uint64_t used;

	pthread_mutex_lock(&lock);
	used = LAST_DEVICE(device) ? managed_bytes[device] + fixed_bytes[device] : 0;
	pthread_mutex_unlock(&lock);
	return used;
}

uint32_t memory_report(struct gl_device out[GL_MAX_DEVICES])
{
	uint32_t n = 0;

	pthread_mutex_lock(&lock);
	for (int d = 0; d < MAX_DEVICES && n < GL_MAX_DEVICES; d++) {
		if (!uuid_known[d])
			continue;
		memcpy(out[n].uuid, uuids[d], GL_UUID_BYTES);
		out[n].bytes = managed_bytes[d];
		out[n].fixed = fixed_bytes[d];
		n++;
	}
	pthread_mutex_unlock(&lock);
	return n;
}

static void prefetch_range(const struct range *range, CUstream stream)
{
	typedef CUresult new_form(CUdeviceptr, size_t, CUmemLocation, unsigned int, CUstream);
	typedef CUresult old_form(CUdeviceptr, size_t, CUdevice, CUstream);
	new_form *prefetch = (new_form *)real_symbol("cuMemPrefetchAsync_v2");
	old_form *old = prefetch ? NULL : (old_form *)real_symbol("cuMemPrefetchAsync");
	CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = range->device};

	if (prefetch)
		prefetch(range->base, range->size, location, 0, stream);
	else if (old)
		old(range->base, range->size, range->device, stream);
}

/* On a stream of our own, which captures and the program's streams do not touch. */
static void prefetch_device(CUdevice device)
{
	CUcontext context = context_of(device), old;
	CUstream stream;

	if (!context || REAL(cuCtxPushCurrent)(context))
		return;
	if (!REAL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING)) {
		pthread_mutex_lock(&lock);
		for (int b = 0; b < BUCKETS; b++)
			for (struct range *r = buckets[b]; r; r = r->next)
				if (r->managed && r->device == device)
					prefetch_range(r, stream);
		pthread_mutex_unlock(&lock);
		REAL(cuStreamSynchronize)(stream);
		REAL(cuStreamDestroy)(stream);
	}
	REAL(cuCtxPopCurrent)(&old);
}

uint64_t memory_prefetch(const struct gl_grant *grant)
{
	uint64_t asked = 0;

	for (uint32_t i = 0; i < grant->n_devices && i < GL_MAX_DEVICES; i++) {
		if (!grant->devices[i].bytes)
			continue;
		for (int d = 0; d < MAX_DEVICES; d++) {
			if (uuid_known[d] &&
			    !memcmp(uuids[d], grant->devices[i].uuid, GL_UUID_BYTES)) {
				prefetch_device(d);
				asked += grant->devices[i].bytes;
			}
		}
	}
	return asked;
}

void memory_after_fork(void)
{
	pthread_mutex_init(&lock, NULL);
	memset(buckets, 0, sizeof(buckets)); /* the parent's; nothing of it is ours */
	memset(managed_bytes, 0, sizeof(managed_bytes));
	memset(fixed_bytes, 0, sizeof(fixed_bytes));
}
