/* vmm_copy.c: copies the bytes of memory in several pieces, at addresses that are reserved for it.
 */
#include "memory/swap/vmm_copy.h"

#include "driver/lookup.h"

static CUresult reserve(const struct physical *physical, CUdeviceptr *base)
{
	return REAL(cuMemAddressReserve)(base, physical->size, 0, 0, 0);
}

static CUresult allow_own_device(const struct physical *physical, CUdeviceptr base)
{
	CUmemAccessDesc access = {.location = physical->prop.location,
	                          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	return REAL(cuMemSetAccess)(base, physical->size, &access, 1);
}

/* Maps the object there, or with whole 0 the pieces. */
static CUresult map_at(const struct physical *physical, CUmemGenericAllocationHandle whole,
                       CUdeviceptr base)
{
	CUresult result;

	result = whole ? DRIVER(cuMemMap)(base, physical->size, 0, whole, 0)
	               : vmm_map(physical, base, physical->size, 0, 0);
	if (result)
		return result;
	result = allow_own_device(physical, base);
	if (result)
		DRIVER(cuMemUnmap)(base, physical->size);
	return result;
}

/* The memory is mapped at `base`. */
static CUresult copy_mapped(CUdeviceptr base, size_t size, char *host, bool out, CUstream stream)
{
	CUresult result;

	result = out ? DRIVER(cuMemcpyDtoHAsync_v2)(host, base, size, stream)
	             : DRIVER(cuMemcpyHtoDAsync_v2)(base, host, size, stream);
	if (result)
		return result;
	return REAL(cuStreamSynchronize)(stream);
}

CUresult vmm_copy_by_host(const struct physical *physical, char *host, bool out, CUstream stream)
{
	CUdeviceptr base;
	CUresult result;

	result = reserve(physical, &base);
	if (result)
		return result;
	result = map_at(physical, 0, base);
	if (!result) {
		result = copy_mapped(base, physical->size, host, out, stream);
		DRIVER(cuMemUnmap)(base, physical->size);
	}
	REAL(cuMemAddressFree)(base, physical->size);
	return result;
}

/* Copies at these two addresses. */
static CUresult copy_on_device(const struct physical *physical, CUmemGenericAllocationHandle whole,
                               CUdeviceptr from, CUdeviceptr to, CUstream stream)
{
	CUresult result;

	result = map_at(physical, 0, from);
	if (result)
		return result;
	result = map_at(physical, whole, to);
	if (!result) {
		result = DRIVER(cuMemcpyDtoDAsync_v2)(to, from, physical->size, stream);
		if (!result)
			result = REAL(cuStreamSynchronize)(stream);
		DRIVER(cuMemUnmap)(to, physical->size);
	}
	DRIVER(cuMemUnmap)(from, physical->size);
	return result;
}

CUresult vmm_copy_to_object(const struct physical *physical, CUmemGenericAllocationHandle whole,
                            CUstream stream)
{
	CUdeviceptr from, to;
	CUresult result;

	result = reserve(physical, &from);
	if (result)
		return result;
	result = reserve(physical, &to);
	if (!result) {
		result = copy_on_device(physical, whole, from, to, stream);
		REAL(cuMemAddressFree)(to, physical->size);
	}
	REAL(cuMemAddressFree)(from, physical->size);
	return result;
}
