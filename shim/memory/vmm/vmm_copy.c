/* vmm_copy.c: copies the bytes of memory in several pieces, at addresses that are reserved for it.
 */
#include "memory/vmm/vmm_copy.h"

#include "driver/lookup.h"
#include "memory/swap/segments.h"

/* Maps the object at new addresses, or with whole 0 the pieces. */
static CUresult map_somewhere(const struct physical *physical, CUmemGenericAllocationHandle whole,
                              CUdeviceptr *base)
{
	size_t size = physical->size;
	CUresult result = REAL(cuMemAddressReserve)(base, size, 0, 0, 0);

	if (result)
		return result;
	result = whole ? DRIVER(cuMemMap)(*base, size, 0, whole, 0)
	               : vmm_map(physical, *base, size, 0, 0);
	if (!result) {
		result = segments_set_access(*base, size, UINT64_C(1) << physical->device, 0);
		if (result)
			DRIVER(cuMemUnmap)(*base, size);
	}
	if (result)
		REAL(cuMemAddressFree)(*base, size);
	return result;
}

static void unmap_there(const struct physical *physical, CUdeviceptr base)
{
	DRIVER(cuMemUnmap)(base, physical->size);
	REAL(cuMemAddressFree)(base, physical->size);
}

CUresult vmm_copy_by_host(const struct physical *physical, char *host, bool out, CUstream stream)
{
	CUdeviceptr at;
	CUresult result = map_somewhere(physical, 0, &at);

	if (result)
		return result;
	result = out ? DRIVER(cuMemcpyDtoHAsync_v2)(host, at, physical->size, stream)
	             : DRIVER(cuMemcpyHtoDAsync_v2)(at, host, physical->size, stream);
	if (!result)
		result = REAL(cuStreamSynchronize)(stream);
	unmap_there(physical, at);
	return result;
}

CUresult vmm_copy_to_object(const struct physical *physical, CUmemGenericAllocationHandle whole,
                            CUstream stream)
{
	CUdeviceptr from, to;
	CUresult result = map_somewhere(physical, 0, &from);

	if (result)
		return result;
	result = map_somewhere(physical, whole, &to);
	if (!result) {
		result = DRIVER(cuMemcpyDtoDAsync_v2)(to, from, physical->size, stream);
		if (!result)
			result = REAL(cuStreamSynchronize)(stream);
		unmap_there(physical, to);
	}
	unmap_there(physical, from);
	return result;
}
