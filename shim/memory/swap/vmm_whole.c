/* vmm_whole.c: memory that is in pieces becomes one object of the driver's.
 *
 * What may be moved is created in pieces (vmm_calls.c). Whoever shows it to others needs
 * the driver's one object for it. If something may be in it already, its bytes go over
 * while the gate is shut and no work is under way, and the object is mapped wherever
 * the pieces were.
 */
#include "memory/swap/vmm_whole.h"

#include "base/clock.h"
#include "base/debug.h"
#include "base/locks.h"
#include "driver/devices.h"
#include "driver/lookup.h"
#include "gate/quiet.h"
#include "memory/room.h"
#include "memory/swap/hostroom.h"
#include "memory/swap/vmm.h"
#include "work/captures.h"
#include "work/contexts.h"

#include <stdlib.h>

#define AGAIN_US 10000

/* One object instead of the pieces; of a program's call, done by the client thread. */
struct change {
	struct physical *physical;
	CUmemGenericAllocationHandle whole; /* 0: there is no room for it beside the pieces, */
	char *host;                         /* and their bytes go through here */
	CUstream stream;
	CUresult result;
};

/* -- addresses for a moment ------------------------------------------------------------ */

static CUresult open_window(const struct physical *physical, CUdeviceptr *base)
{
	return REAL(cuMemAddressReserve)(base, physical->size, 0, 0, 0);
}

static CUresult allow_here(const struct physical *physical, CUdeviceptr base)
{
	CUmemAccessDesc access = {.location = physical->prop.location,
	                          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	return REAL(cuMemSetAccess)(base, physical->size, &access, 1);
}

static CUresult show(const struct physical *physical, CUmemGenericAllocationHandle whole,
                     CUdeviceptr base)
{
	CUresult result;

	result = whole ? DRIVER(cuMemMap)(base, physical->size, 0, whole, 0)
	               : vmm_map(physical, base, physical->size, 0, 0);
	if (result)
		return result;
	result = allow_here(physical, base);
	if (result)
		DRIVER(cuMemUnmap)(base, physical->size);
	return result;
}

/* Copies the bytes to the host, or from it; the memory is mapped at `base`. */
static CUresult copy_by_host(struct change *change, CUdeviceptr base, bool out)
{
	size_t size = change->physical->size;
	CUresult result;

	result = out ? DRIVER(cuMemcpyDtoHAsync_v2)(change->host, base, size, change->stream)
	             : DRIVER(cuMemcpyHtoDAsync_v2)(base, change->host, size, change->stream);
	if (result)
		return result;
	return REAL(cuStreamSynchronize)(change->stream);
}

static CUresult in_window(struct change *change, bool out)
{
	const struct physical *physical = change->physical;
	CUdeviceptr base;
	CUresult result;

	result = open_window(physical, &base);
	if (result)
		return result;
	result = show(physical, 0, base);
	if (!result) {
		result = copy_by_host(change, base, out);
		DRIVER(cuMemUnmap)(base, physical->size);
	}
	REAL(cuMemAddressFree)(base, physical->size);
	return result;
}

/* Copies from the pieces to the whole, on the device. */
static CUresult copy_over(struct change *change, CUdeviceptr from, CUdeviceptr to)
{
	const struct physical *physical = change->physical;
	CUresult result;

	result = show(physical, 0, from);
	if (result)
		return result;
	result = show(physical, change->whole, to);
	if (!result) {
		result = DRIVER(cuMemcpyDtoDAsync_v2)(to, from, physical->size, change->stream);
		if (!result)
			result = REAL(cuStreamSynchronize)(change->stream);
		DRIVER(cuMemUnmap)(to, physical->size);
	}
	DRIVER(cuMemUnmap)(from, physical->size);
	return result;
}

static CUresult copy_beside(struct change *change)
{
	const struct physical *physical = change->physical;
	CUdeviceptr from, to;
	CUresult result;

	result = open_window(physical, &from);
	if (result)
		return result;
	result = open_window(physical, &to);
	if (!result) {
		result = copy_over(change, from, to);
		REAL(cuMemAddressFree)(to, physical->size);
	}
	REAL(cuMemAddressFree)(from, physical->size);
	return result;
}

/* -- its mappings ------------------------------------------------------------------------ */

static void unmap_all(const struct physical *physical)
{
	for (const struct mapping *m = physical->mappings; m; m = m->next)
		DRIVER(cuMemUnmap)(m->base, m->size);
}

static CUresult allow_again(const struct mapping *m)
{
	CUmemAccessDesc access[MAX_DEVICES] = {0};
	size_t n = 0;

	for (int d = 0; d < MAX_DEVICES; d++) {
		uint64_t bit = UINT64_C(1) << d;

		if (!((m->writers | m->readers) & bit))
			continue;
		access[n].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
		access[n].location.id = d;
		access[n++].flags = m->writers & bit ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
		                                     : CU_MEM_ACCESS_FLAGS_PROT_READ;
	}
	return n ? REAL(cuMemSetAccess)(m->base, m->size, access, n) : CUDA_SUCCESS;
}

static CUresult map_all(const struct physical *physical)
{
	CUresult result = CUDA_SUCCESS;

	for (const struct mapping *m = physical->mappings; m && !result; m = m->next) {
		result = vmm_map(physical, m->base, m->size, m->offset, 0);
		if (!result)
			result = allow_again(m);
	}
	if (result)
		complain("exported memory of device %d could not be mapped again (CUDA error %d)",
		         physical->device, (int)result);
	return result;
}

static void take_whole(struct physical *physical, CUmemGenericAllocationHandle whole)
{
	vmm_release_pieces(physical);
	physical->pieces[0] = whole;
	physical->n = 1;
}

/* No bytes are in it, or they have been saved. */
static CUresult make_anew(struct physical *physical)
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

/* The room of the pieces is free now, unless somebody else has taken it meanwhile. */
static CUresult create_in_its_room(struct physical *physical)
{
	uint64_t start = now_ns();
	CUresult result;

	do {
		result = make_anew(physical);
		if (result == CUDA_ERROR_OUT_OF_MEMORY)
			pause_us(AGAIN_US);
	} while (result == CUDA_ERROR_OUT_OF_MEMORY && now_ns() - start < ROOM_NS);
	if (result)
		complain("exported memory of device %d is lost (CUDA error %d)", physical->device,
		         (int)result);
	return result;
}

static CUresult through_host(struct change *change)
{
	struct physical *physical = change->physical;
	CUresult result;

	result = in_window(change, true);
	if (result)
		return result;
	unmap_all(physical);
	result = create_in_its_room(physical);
	if (result)
		return result;
	result = map_all(physical);
	if (result)
		return result;
	return in_window(change, false);
}

static CUresult exchange(struct change *change)
{
	CUresult result;

	if (!change->whole)
		return through_host(change);
	result = copy_beside(change);
	if (result)
		return result;
	unmap_all(change->physical);
	take_whole(change->physical, change->whole);
	change->whole = 0;
	return map_all(change->physical);
}

/* Another thread may have done it meanwhile. */
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

/* Memory whose bytes do not count is exchanged at once. *copy: they count, so the change is still
 * to be made. */
static CUresult begin(struct physical *physical, bool *copy)
{
	CUresult result = CUDA_SUCCESS;

	lock_take(&vmm_lock);
	*copy = physical->n > 1 && physical->written;
	if (physical->n > 1 && !physical->written)
		result = make_anew(physical);
	for (const struct mapping *m = physical->mappings; *copy && m; m = m->next)
		if (m->foreign_access) /* its access could not be set again */
			result = CUDA_ERROR_NOT_SUPPORTED;
	lock_give(&vmm_lock);
	return result;
}

static CUresult make_room(struct change *change)
{
	const struct physical *physical = change->physical;
	CUresult result = DRIVER(cuMemCreate)(&change->whole, physical->size, &physical->prop, 0);

	if (result != CUDA_ERROR_OUT_OF_MEMORY)
		return result;
	change->whole = 0;
	change->host = host_has_room(physical->size) ? malloc(physical->size) : NULL;
	return change->host ? CUDA_SUCCESS : result;
}

CUresult vmm_make_whole(struct physical *physical)
{
	struct change change = {.physical = physical};
	CUresult result;
	bool copy;

	result = begin(physical, &copy);
	if (result || !copy)
		return result;
	if (captures_exist()) /* the end of a capture would be waited for, maybe by its own thread
	                       */
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	result = make_room(&change);
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
