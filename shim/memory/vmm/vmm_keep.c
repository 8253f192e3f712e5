/* vmm_keep.c: memory that the program has created and that others come to know stays where it is,
 * as one object of the driver's.
 *
 * Memory that can be swapped is created in pieces (hooks/vmm_handles.c), but a call that exports it
 * needs one object. If the memory may contain bytes already, they are copied while the gate is shut
 * and no work runs, and the object is mapped wherever the pieces were.
 */
#include "memory/vmm/vmm_keep.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/locks.h"
#include "driver/lookup.h"
#include "gate/quiet.h"
#include "memory/shortage.h"
#include "memory/store/cgroup_memory.h"
#include "memory/swap/segments.h"
#include "memory/vmm/vmm.h"
#include "memory/vmm/vmm_copy.h"
#include "work/captures.h"
#include "work/contexts.h"

#include <stdlib.h>

#define RETRY_US 10000

/* The replacement of pieces by one object. A thread of the program asks for it, and the client
 * thread carries it out. */
struct change {
	struct physical *physical;
	CUmemGenericAllocationHandle
	    whole;  /* 0: the device has no memory for it beside the pieces */
	char *host; /* then the bytes are copied through this memory */
	CUstream stream;
	CUresult result;
};

/* -- the memory's mappings ---------------------------------------------------------------- */

static void unmap_all(const struct physical *physical)
{
	for (const struct mapping *m = physical->mappings; m; m = m->next)
		DRIVER(cuMemUnmap)(m->base, m->size);
}

static CUresult map_all(const struct physical *physical)
{
	CUresult result = CUDA_SUCCESS;

	for (const struct mapping *m = physical->mappings; m && !result; m = m->next) {
		result = vmm_map(physical, m->base, m->size, m->offset, 0);
		if (!result)
			result = segments_set_access(m->base, m->size, m->writers, m->readers);
	}
	if (result)
		complain("exported memory of device %d could not be mapped again (CUDA error %d); "
		         "start the job again, and if that does not help, ask the administrator to "
		         "look at this GPU (dmesg)",
		         physical->device, (int)result);
	return result;
}

static void take_whole(struct physical *physical, CUmemGenericAllocationHandle whole)
{
	vmm_release_pieces(physical);
	physical->pieces[0] = whole;
	physical->n = 1;
}

/* Releases the pieces, whose bytes need not be kept or have been copied, and creates the object. */
static CUresult replace_pieces(struct physical *physical)
{
	CUmemGenericAllocationHandle whole;
	CUresult result;

	vmm_release_pieces(physical);
	result = DRIVER(cuMemCreate)(&whole, physical->size, &physical->prop, 0);
	if (result)
		return result;
	take_whole(physical, whole);
	return CUDA_SUCCESS;
}

/* -- the change --------------------------------------------------------------------------- */

/* The memory of the pieces is free once they are released, unless another process allocates it
 * first. Then this waits for other jobs to evict memory. */
static CUresult replace_or_wait(struct physical *physical)
{
	uint64_t start = now_ns();
	CUresult result;

	do {
		result = replace_pieces(physical);
		if (result == CUDA_ERROR_OUT_OF_MEMORY)
			pause_us(RETRY_US);
	} while (result == CUDA_ERROR_OUT_OF_MEMORY && now_ns() - start < EVICTION_WAIT_NS);
	if (result)
		complain(
		    "exported memory of device %d is lost (CUDA error %d): the bytes that it had "
		    "are gone; start the job again",
		    physical->device, (int)result);
	return result;
}

static CUresult through_host(struct change *change)
{
	struct physical *physical = change->physical;
	CUresult result;

	result = vmm_copy_by_host(physical, change->host, true, change->stream);
	if (result)
		return result;
	unmap_all(physical);
	result = replace_or_wait(physical);
	if (result)
		return result;
	result = map_all(physical);
	if (result)
		return result;
	return vmm_copy_by_host(physical, change->host, false, change->stream);
}

static CUresult exchange(struct change *change)
{
	CUresult result;

	if (!change->whole)
		return through_host(change);
	result = vmm_copy_to_object(change->physical, change->whole, change->stream);
	if (result)
		return result;
	unmap_all(change->physical);
	take_whole(change->physical, change->whole);
	change->whole = 0;
	return map_all(change->physical);
}

/* Does nothing if another thread has made the change meanwhile. */
static CUresult change_in_stream(struct change *change)
{
	CUresult result = CUDA_SUCCESS;

	lock_take(&vmm_lock);
	if (change->physical->n > 1)
		result = exchange(change);
	lock_give(&vmm_lock);
	return result;
}

static void change_in(CUcontext context, void *argument)
{
	struct change *change = argument;

	(void)context;
	change->result = REAL(cuStreamCreate)(&change->stream, CU_STREAM_NON_BLOCKING);
	if (change->result)
		return;
	change->result = change_in_stream(change);
	REAL(cuStreamDestroy_v2)(change->stream);
}

static void change_quietly(void *argument)
{
	struct change *change = argument;

	change->result = CUDA_ERROR_INVALID_CONTEXT;
	contexts_with(change->physical->device, NULL, change_in, change);
}

/* Makes the change at once if the memory was never mapped, so that it has no bytes to keep. Else
 * *copy is true, and the change still has to be made. */
static CUresult begin(struct physical *physical, bool *copy)
{
	CUresult result = CUDA_SUCCESS;

	lock_take(&vmm_lock);
	*copy = physical->n > 1 && physical->written;
	if (physical->n > 1 && !physical->written)
		result = replace_pieces(physical);
	for (const struct mapping *m = physical->mappings; *copy && m; m = m->next)
		if (m->foreign_access) /* we could not give the same access again */
			result = CUDA_ERROR_NOT_SUPPORTED;
	lock_give(&vmm_lock);
	return result;
}

/* Creates the object, or else allocates host memory for the bytes. */
static CUresult prepare(struct change *change)
{
	const struct physical *physical = change->physical;
	CUresult result = DRIVER(cuMemCreate)(&change->whole, physical->size, &physical->prop, 0);

	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		return result;
	change->whole = 0;
	change->host = cgroup_has_memory(physical->size) ? malloc(physical->size) : NULL;
	return change->host ? CUDA_SUCCESS : result;
}

static CUresult change_pieces(struct physical *physical)
{
	struct change change = {.physical = physical};
	CUresult result;
	bool copy;

	result = begin(physical, &copy);
	if (result || !copy)
		return result;
	if (captures_exist()) /* quiet_do() would wait for their end, maybe in a capturing thread */
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	result = prepare(&change);
	if (result)
		return result;
	result = quiet_do(change_quietly, &change);
	if (!result)
		result = change.result;
	if (change.whole)
		DRIVER(cuMemRelease)(change.whole);
	free(change.host);
	return result;
}

/* Replaces the pieces by one object with the same bytes and mappings. The caller has retained the
 * memory, and this releases it again. May wait for the lease. Errors: see vmm_keep.h. */
static CUresult make_whole(struct physical *physical)
{
	CUresult result = change_pieces(physical);

	lock_take(&vmm_lock);
	vmm_release(physical);
	lock_give(&vmm_lock);
	return result;
}

/* -- what stays ------------------------------------------------------------------------------- */

CUresult vmm_keep(CUmemGenericAllocationHandle *handle)
{
	struct physical *physical;
	CUresult result;

	lock_take(&vmm_lock);
	physical = vmm_find(*handle);
	if (vmm_ours(physical))
		physical->stays = true;
	lock_give(&vmm_lock);
	result = vmm_take_back_handle(*handle);
	if (result)
		return result;
	lock_take(&vmm_lock);
	physical = vmm_find(*handle);
	if (!vmm_ours(physical) || !vmm_retain(physical))
		physical = NULL;
	lock_give(&vmm_lock);
	if (!physical)
		return CUDA_SUCCESS;
	result = make_whole(physical);
	if (result)
		return result;
	lock_take(&vmm_lock);
	physical = vmm_find(*handle);
	if (vmm_ours(physical))
		*handle = physical->pieces[0];
	lock_give(&vmm_lock);
	return CUDA_SUCCESS;
}

/* The first memory in the range that has several pieces, or NULL. It is retained for the caller. */
static struct physical *in_pieces(CUdeviceptr base, size_t size)
{
	struct physical *found = NULL;
	struct mapping *mapping;

	lock_take(&vmm_lock);
	for (CUdeviceptr at = base; !found && at - base < size && (mapping = vmm_at(at));
	     at = mapping->base + mapping->size)
		if (mapping->physical->n > 1 && vmm_retain(mapping->physical))
			found = mapping->physical;
	lock_give(&vmm_lock);
	return found;
}

CUresult vmm_keep_range(CUdeviceptr base, size_t size)
{
	struct physical *physical;
	struct mapping *mapping;
	CUresult result;

	lock_take(&vmm_lock);
	for (CUdeviceptr at = base; at - base < size && (mapping = vmm_at(at));
	     at = mapping->base + mapping->size)
		mapping->physical->stays = true;
	lock_give(&vmm_lock);
	result = vmm_take_back(base, size);
	if (result)
		return result;
	while ((physical = in_pieces(base, size))) {
		result = make_whole(physical);
		if (result)
			return result;
	}
	return CUDA_SUCCESS;
}
