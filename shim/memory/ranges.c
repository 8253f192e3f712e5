/* ranges.c: the allocations of this process, and the bytes of each kind of memory. */
#include "memory/ranges.h"

#include "base/fork.h"
#include "base/locks.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "memory/changes.h"
#include "memory/limit.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096

struct range {
	struct range *next;
	CUdeviceptr base;
	struct memory_range is;
	unsigned long number; /* later allocations have higher numbers */
};

static struct range *buckets[BUCKETS];
static uint64_t bytes[MAX_DEVICES][N_MEMORY_KINDS];
static uint64_t mapped[MAX_DEVICES]; /* bytes of fixed memory that the program maps itself */
static unsigned long allocations;
static struct lock lock = LOCK(LOCK_MEMORY);

static struct range **bucket_of(CUdeviceptr base)
{
	return &buckets[(base >> 9) * UINT64_C(0x9E3779B97F4A7C15) >> 52];
}

void memory_count(CUdevice device, enum memory_row row, int64_t n)
{
	if (!device_is_number(device))
		return;
	lock_take(&lock);
	bytes[device][row] += (uint64_t)n;
	lock_give(&lock);
	memory_changed();
}

void memory_count_mapped(CUdevice device, int64_t n)
{
	if (!device_is_number(device))
		return;
	lock_take(&lock);
	mapped[device] += (uint64_t)n;
	lock_give(&lock);
	memory_count(device, MEMORY_fixed, n);
}

uint64_t memory_mapped(CUdevice device)
{
	uint64_t n;

	lock_take(&lock);
	n = mapped[device];
	lock_give(&lock);
	return n;
}

uint64_t memory_counted(enum memory_row row, CUdevice device)
{
	uint64_t n;

	lock_take(&lock);
	n = bytes[device][row];
	lock_give(&lock);
	return n;
}

void memory_add(CUdeviceptr base, size_t size, CUdevice device, const struct memory_kind *kind,
                CUmemoryPool pool)
{
	struct range *range = malloc(sizeof(*range));
	CUcontext context = NULL;

	if (!range || !device_is_number(device)) {
		free(range);
		if (!kind->limits_itself)
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
	memory_count(device, kind->row, (int64_t)size);
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
	if (!range->is.kind->limits_itself)
		limit_give(range->is.device, range->is.size);
	memory_count(range->is.device, range->is.kind->row, -(int64_t)range->is.size);
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
		if (range->is.kind->outlives_contexts)
			range->is.kind->free(range->base, &range->is, false);
		uncount(range);
	}
}

static int newest_first(const void *a, const void *b)
{
	const struct memory_span *x = a, *y = b;

	return (x->number < y->number) - (x->number > y->number);
}

/* Makes the list longer if all `capacity` entries are used. Returns false if the host is out of
 * memory; then the list stays incomplete, and the driver moves the rest when it is used. */
static bool make_longer(struct memory_span **list, size_t n, size_t *capacity)
{
	struct memory_span *more;

	if (n < *capacity)
		return true;
	more = realloc(*list, (*capacity ? 2 * *capacity : 256) * sizeof(**list));
	if (!more)
		return false;
	*capacity = *capacity ? 2 * *capacity : 256;
	*list = more;
	return true;
}

struct memory_span *memory_spans(enum memory_row row, CUdevice device, size_t *n)
{
	struct memory_span *list = NULL;
	bool fits = true;
	size_t capacity = 0;

	*n = 0;
	lock_take(&lock);
	for (int b = 0; b < BUCKETS && fits; b++) {
		for (struct range *r = buckets[b]; r && fits; r = r->next) {
			if (r->is.kind->row != row || r->is.device != device)
				continue;
			fits = make_longer(&list, *n, &capacity);
			if (fits)
				list[(*n)++] = (struct memory_span){r->base, r->is.size, r->number};
		}
	}
	lock_give(&lock);
	if (*n)
		qsort(list, *n, sizeof(*list), newest_first);
	return list;
}

static void in_child(void)
{
	lock_after_fork(&lock);
	memset(buckets, 0, sizeof(buckets)); /* they are the parent's */
	memset(bytes, 0, sizeof(bytes));
	memset(mapped, 0, sizeof(mapped));
}
FORK_WATCH(in_child);
