/* cuda_memory.c: the emulated libcuda: allocation, host memory and pointer attributes. */
#include "cuda_client.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DEVICE_FIRST UINT64_C(0x20000000000)
#define DEVICE_LAST UINT64_C(0x40000000000)

struct host_range {
	struct host_range *next;
	char *base;
	size_t size;
	bool ours;
};

static struct host_range *pinned; /* under emu_lock */

bool emu_is_device(uint64_t pointer)
{
	return pointer >= DEVICE_FIRST && pointer < DEVICE_LAST;
}

static struct host_range **find_pinned(const void *host)
{
	struct host_range **at = &pinned;

	while (*at && !((const char *)host >= (*at)->base &&
	                (const char *)host < (*at)->base + (*at)->size))
		at = &(*at)->next;
	return at;
}

bool emu_is_pinned(const void *host)
{
	bool found;

	pthread_mutex_lock(&emu_lock);
	found = *find_pinned(host);
	pthread_mutex_unlock(&emu_lock);
	return found;
}

static CUresult allocate(CUdeviceptr *out, size_t size, bool managed)
{
	struct emu_request q = {.op = EMU_ALLOC};
	struct emu_reply r;
	struct emu_ctx *ctx;
	CUresult result;

	TRY(emu_need_ctx(&ctx));
	TRY(emu_unsafe_call());
	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	q.arg[0] = ctx->id;
	q.arg[1] = size;
	q.arg[2] = managed;
	result = emu_sticky(ctx, emu_call(&q, &r, NULL));
	if (!result)
		*out = r.r[0];
	return result;
}

EXPORT CUresult cuMemAlloc(CUdeviceptr *out, size_t size)
{
	return allocate(out, size, false);
}

EXPORT CUresult cuMemAllocPitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
                                unsigned int element)
{
	(void)element;
	*pitch = (width + 511) / 512 * 512;
	return allocate(out, *pitch * height, false);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	return allocate(out, size, true);
}

EXPORT CUresult cuMemFree(CUdeviceptr pointer)
{
	struct emu_request q = {.op = EMU_RANGE, .arg = {pointer}};
	struct emu_reply r;

	TRY(emu_ready());
	if (!pointer)
		return CUDA_SUCCESS;
	TRY(emu_unsafe_call());
	TRY(emu_call(&q, &r, NULL));
	q = (struct emu_request){.op = EMU_FREE, .arg = {r.r[3], pointer}};
	return emu_call(&q, NULL, NULL);
}

/* Ordered allocations exist at once and are freed when their stream gets there. */
static CUresult alloc_async(CUdeviceptr *out, size_t size, CUstream stream)
{
	struct target t;

	TRY(emu_target(stream, &t));
	if (t.stream && t.stream->capture)
		return CUDA_ERROR_NOT_SUPPORTED;
	return allocate(out, size, false);
}

static CUresult free_async(CUdeviceptr pointer, CUstream stream)
{
	struct emu_request range = {.op = EMU_RANGE, .arg = {pointer}};
	struct emu_request q = {.op = EMU_FREE_ORDERED, .arg = {0, pointer}};

	struct emu_reply r;

	TRY(emu_ready());
	TRY(emu_call(&range, &r, NULL));
	if (r.r[0] != pointer)
		return CUDA_ERROR_INVALID_VALUE;
	return emu_submit(stream, &q, NULL);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream)
{
	return alloc_async(out, size, emu_legacy(stream));
}

EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t size, CUstream stream)
{
	return alloc_async(out, size, emu_per_thread(stream));
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool pool,
                                        CUstream stream)
{
	(void)pool;
	return alloc_async(out, size, emu_legacy(stream));
}

EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t size, CUmemoryPool pool,
                                             CUstream stream)
{
	(void)pool;
	return alloc_async(out, size, emu_per_thread(stream));
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
	return free_async(pointer, emu_legacy(stream));
}

EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
	return free_async(pointer, emu_per_thread(stream));
}

/* One default pool a device, which keeps nothing back. */
EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	TRY(emu_ready());
	*pool = (CUmemoryPool)&emu_info[device];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	return cuDeviceGetDefaultMemPool(pool, device);
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	(void)pool;
	(void)attribute;
	(void)value;
	return emu_ready();
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	(void)pool;
	(void)keep;
	return emu_ready();
}

EXPORT CUresult cuMemGetInfo(size_t *free_bytes, size_t *total)
{
	struct emu_request q = {.op = EMU_MEM_INFO};
	struct emu_reply r;
	struct emu_ctx *ctx;

	TRY(emu_need_ctx(&ctx));
	q.arg[0] = (uint64_t)ctx->device;
	TRY(emu_call(&q, &r, NULL));
	*free_bytes = r.r[0];
	*total = r.r[1];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr pointer)
{
	struct emu_request q = {.op = EMU_RANGE, .arg = {pointer}};
	struct emu_reply r;

	TRY(emu_ready());
	if (emu_call(&q, &r, NULL))
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = r.r[0];
	if (size)
		*size = r.r[1];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                      CUdeviceptr pointer)
{
	struct emu_request q = {.op = EMU_RANGE, .arg = {pointer}};
	struct emu_reply r;

	TRY(emu_ready());
	TRY(emu_call(&q, &r, NULL));
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)data = (unsigned)r.r[2];
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = pointer;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = (int)r.r[4];
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = r.r[0];
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = r.r[1];
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
	(void)handle;
	(void)pointer;
	TRY(emu_ready());
	return CUDA_ERROR_INVALID_VALUE;
}

#undef cuMemAdvise
EXPORT CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t size, CUmem_advise advice,
                               CUmemLocation location)
{
	(void)pointer;
	(void)size;
	(void)advice;
	(void)location;
	return emu_ready();
}

static CUresult prefetch(CUdeviceptr pointer, size_t size, bool to_device, CUstream stream)
{
	struct emu_request range = {.op = EMU_RANGE, .arg = {pointer}};
	struct emu_request q = {.op = EMU_PREFETCH, .arg = {0, pointer, size, to_device}};
	struct emu_reply r;

	TRY(emu_ready());
	TRY(emu_call(&range, &r, NULL));
	if (!r.r[2] || size > r.r[0] + r.r[1] - pointer)
		return CUDA_ERROR_INVALID_VALUE;
	return emu_submit(stream, &q, NULL);
}

#undef cuMemPrefetchAsync
CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t size, CUdevice device, CUstream stream);
EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t size, CUdevice device,
                                   CUstream stream)
{
	return prefetch(pointer, size, device != CU_DEVICE_CPU, emu_legacy(stream));
}

EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t size, CUmemLocation location,
                                      unsigned int flags, CUstream stream)
{
	(void)flags;
	return prefetch(pointer, size, location.type == CU_MEM_LOCATION_TYPE_DEVICE,
	                emu_legacy(stream));
}

EXPORT CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr pointer, size_t size, CUmemLocation location,
                                           unsigned int flags, CUstream stream)
{
	(void)flags;
	return prefetch(pointer, size, location.type == CU_MEM_LOCATION_TYPE_DEVICE,
	                emu_per_thread(stream));
}

static CUresult pin(void *base, size_t size, bool ours)
{
	struct host_range *range = calloc(1, sizeof(*range));

	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&emu_lock);
	*range = (struct host_range){pinned, base, size, ours};
	pinned = range;
	pthread_mutex_unlock(&emu_lock);
	return CUDA_SUCCESS;
}

static CUresult unpin(void *base, bool ours)
{
	struct host_range **at, *range;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&emu_lock);
	at = find_pinned(base);
	range = *at;
	if (range && range->base == base && range->ours == ours) {
		*at = range->next;
		if (ours)
			munmap(base, range->size);
		free(range);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&emu_lock);
	return result;
}

EXPORT CUresult cuMemHostAlloc(void **out, size_t size, unsigned int flags)
{
	struct emu_ctx *ctx;

	(void)flags;
	TRY(emu_need_ctx(&ctx));
	*out = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return *out == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : pin(*out, size, true);
}

EXPORT CUresult cuMemAllocHost(void **out, size_t size)
{
	return cuMemHostAlloc(out, size, 0);
}

EXPORT CUresult cuMemFreeHost(void *host)
{
	TRY(emu_ready());
	return host ? unpin(host, true) : CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostRegister(void *host, size_t size, unsigned int flags)
{
	struct emu_ctx *ctx;

	(void)flags;
	TRY(emu_need_ctx(&ctx));
	return pin(host, size, false);
}

EXPORT CUresult cuMemHostUnregister(void *host)
{
	TRY(emu_ready());
	return unpin(host, false);
}
