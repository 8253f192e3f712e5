/* deferred_free.c: freeing swapped memory, at once or after a capture. */
#include "memory/swap/deferred_free.h"

#include "base/fork.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "memory/kind.h"
#include "memory/swap/blocks.h"
#include "memory/swap/devices.h"
#include "memory/swap/hold.h"
#include "memory/swap/slabs.h"
#include "work/captures.h"

#include <stdlib.h>

/* What was freed while a capture went on, during which nobody may wait. */
struct put_off {
	struct put_off *next;
	CUdeviceptr pointer;
	size_t size;
	CUcontext context;
};
static _Atomic(struct put_off *) put_offs; /* changed under swap_lock */

/* No work uses the memory any more. */
static void give(CUdeviceptr pointer, size_t size)
{
	struct block *block;
	bool moves = false;

	lock_take(&swap_lock);
	block = block_find(pointer);
	if (block && block->slab && !slab_give(block->slab, pointer, size))
		block = NULL;
	if (block && block->slab)
		slab_forget(block);
	if (block) {
		block_forget(block);
		moves = block->n_moving;
	}
	lock_give(&swap_lock);
	if (block && !moves)
		block_end(block);
}

/* Waits for the work of the context. False: a capture forbids it. */
static bool quiesce(CUcontext context, CUresult *result)
{
	CUevent event = NULL;
	CUcontext old;

	if (!captures_hold_off())
		return false;
	*result = REAL(cuCtxPushCurrent_v2)(context);
	if (*result) {
		captures_let();
		return true;
	}
	*result = CUDA_ERROR_NOT_FOUND;
	if (REAL(cuCtxRecordEvent) &&
	    !REAL(cuEventCreate)(&event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING))
		*result = REAL(cuCtxRecordEvent)(context, event);
	if (*result)
		*result = REAL(cuCtxSynchronize)();
	captures_let();
	if (event) {
		CUstreamCaptureMode mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);

		if (!*result)
			*result = REAL(cuEventSynchronize)(event);
		REAL(cuEventDestroy_v2)(event);
		captures_mode(mode);
	}
	REAL(cuCtxPopCurrent_v2)(&old);
	return true;
}

static CUresult put_off(CUdeviceptr pointer, size_t size, CUcontext context)
{
	struct put_off *p = malloc(sizeof(*p));

	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	lock_take(&swap_lock);
	*p = (struct put_off){put_offs, pointer, size, context};
	put_offs = p;
	lock_give(&swap_lock);
	return CUDA_SUCCESS;
}

/* Frees what was put off and can be freed now. context: only of that one, which has ended; NULL:
 * of all. */
static void catch_up(CUcontext context, bool wait)
{
	struct put_off *list, *p;
	CUresult ignored;

	lock_take(&swap_lock);
	list = put_offs;
	put_offs = NULL;
	lock_give(&swap_lock);
	while ((p = list)) {
		list = p->next;
		if (context ? p->context == context
		            : !swap_holds() || (wait && quiesce(p->context, &ignored)))
			give(p->pointer, p->size);
		else
			put_off(p->pointer, p->size, p->context);
		free(p);
	}
}

void swap_catch_up(bool wait)
{
	if (swap_used() && put_offs)
		catch_up(NULL, wait);
}

bool swap_wait_for(CUcontext context, CUresult *result)
{
	return !swap_holds() || quiesce(context, result);
}

CUresult swap_free(CUdeviceptr pointer, const struct memory_range *range, bool wait)
{
	CUresult result = CUDA_SUCCESS;
	CUstreamCaptureMode mode;

	if (wait && swap_holds() && !quiesce(range->context, &result))
		return put_off(pointer, range->size, range->context);
	mode = captures_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
	give(pointer, range->size);
	swap_catch_up(wait);
	captures_mode(mode);
	return result;
}

void swap_free_of_context(CUcontext context)
{
	if (swap_used())
		catch_up(context, false);
}

static void in_child(void)
{
	put_offs = NULL; /* the parent's */
}
FORK_WATCH(in_child);
