/* deferred_free.c: frees swapped memory, at once or after a capture. */
#include "memory/swap/deferred_free.h"

#include "base/fork.h"
#include "driver/lookup.h"
#include "memory/kind.h"
#include "memory/swap/blocks.h"
#include "memory/swap/lane.h"
#include "work/captures.h"
#include "work/wait.h"

#include <stdlib.h>

/* An allocation that the program has freed during a capture, in which no thread may wait for
 * work. */
struct deferred {
	struct deferred *next;
	CUdeviceptr pointer;
	size_t size;
	CUcontext context;
};
static _Atomic(struct deferred *) all_deferred;

static CUresult defer(CUdeviceptr pointer, size_t size, CUcontext context)
{
	struct deferred *d = malloc(sizeof(*d));

	if (!d)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*d = (struct deferred){all_deferred, pointer, size, context};
	while (!atomic_compare_exchange_weak(&all_deferred, &d->next, d))
		;
	return CUDA_SUCCESS;
}

/* Frees what was deferred and can be freed now. context: one that has ended, whose allocations
 * alone are freed; NULL: those of all contexts. */
static void free_deferred(CUcontext context, bool wait)
{
	struct deferred *list = atomic_exchange(&all_deferred, NULL), *d;
	CUresult ignored;

	while ((d = list)) {
		list = d->next;
		if (context ? d->context == context
		            : !residency_lasts() || (wait && context_wait(d->context, &ignored)))
			block_free(d->pointer, d->size);
		else
			defer(d->pointer, d->size, d->context);
		free(d);
	}
}

void swap_free_deferred(bool wait)
{
	if (swap_used() && all_deferred)
		free_deferred(NULL, wait);
}

bool swap_defers(void)
{
	return all_deferred != NULL;
}

bool swap_wait_for_work(CUcontext context, CUresult *result)
{
	return !residency_lasts() || context_wait(context, result);
}

CUresult swap_free(CUdeviceptr pointer, const struct memory_range *range, bool wait)
{
	CUresult result = CUDA_SUCCESS;
	CUstreamCaptureMode mode;

	if (wait && residency_lasts() && !context_wait(range->context, &result))
		return defer(pointer, range->size, range->context);
	mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	block_free(pointer, range->size);
	swap_free_deferred(wait);
	captures_mode(mode);
	return result;
}

void swap_free_deferred_of(CUcontext context)
{
	if (swap_used())
		free_deferred(context, false);
}

static void in_child(void)
{
	all_deferred = NULL; /* they are the parent's */
}
FORK_WATCH(in_child);
