/* pools.c: the functions that create, destroy and describe memory pools. */
#include "memory/pools.h"
#include "base/compiler.h"
#include "driver/lookup.h"
#include "memory/free_blocks.h"
#include "memory/ranges.h"
#include "memory/swap/segments.h"

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	__typeof__(&cuMemPoolCreate) real = DRIVER(cuMemPoolCreate);
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = real(pool, props);
	if (result)
		return result;
	if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		pool_classify(*pool, -1, POOL_NOT_OURS);
	else if (props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED && !props->handleTypes)
		pool_classify(*pool, props->location.id, POOL_IS_OURS);
	else
		pool_classify(*pool, props->location.id, POOL_STAYS_PLAIN);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	__typeof__(&cuMemPoolDestroy) real = DRIVER(cuMemPoolDestroy);
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	free_blocks_trim(pool, 0, true);
	result = real(pool);
	if (result)
		return result;
	memory_forget_pool(pool);
	pool_forget(pool);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t least)
{
	__typeof__(&cuMemPoolTrimTo) real = DRIVER(cuMemPoolTrimTo);
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = real(pool, least);
	if (result)
		return result;
	free_blocks_trim(pool, least, false);
	return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 13000
static void classify_found(CUmemoryPool pool, const CUmemLocation *location,
                           CUmemAllocationType type)
{
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		pool_classify(pool, -1, POOL_NOT_OURS);
	else if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
		pool_classify(pool, location->id, POOL_STAYS_PLAIN);
}

#define GET_POOL(name)                                                                             \
	EXPORT CUresult name(CUmemoryPool *pool, CUmemLocation *location,                          \
	                     CUmemAllocationType type)                                             \
	{                                                                                          \
		__typeof__(&name) real = DRIVER(name);                                             \
		CUresult result = real ? real(pool, location, type) : CUDA_ERROR_NOT_FOUND;        \
		if (!result)                                                                       \
			classify_found(*pool, location, type);                                     \
		return result;                                                                     \
	}

GET_POOL(cuMemGetDefaultMemPool)
GET_POOL(cuMemGetMemPool)
#endif

/* Access that the program grants to the pool's memory is granted to all swapped memory of its
 * device. */
EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	__typeof__(&cuMemPoolSetAccess) real = DRIVER(cuMemPoolSetAccess);
	CUdevice device, current = -1;
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = real(pool, map, count);
	if (result)
		return result;
	REAL(cuCtxGetDevice)(&current);
	device = pool_device(pool, current);
	for (size_t i = 0; i < count; i++)
		if (map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
		    map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
			swap_peer(device, map[i].location.id);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	__typeof__(&cuMemPoolGetAttribute) real = DRIVER(cuMemPoolGetAttribute);
	CUresult result;
	uint64_t bytes;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = real(pool, attribute, value);
	if (result)
		return result;
	bytes = pool_attribute(pool, attribute);
	if (bytes)
		*(cuuint64_t *)value += bytes;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	__typeof__(&cuMemPoolSetAttribute) real = DRIVER(cuMemPoolSetAttribute);
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = real(pool, attribute, value);
	if (result)
		return result;
	pool_set_attribute(pool, attribute, value);
	return CUDA_SUCCESS;
}
