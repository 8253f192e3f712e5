/* host.c: the emulated libcuda: pinned host memory. */
#include "abi/client.h"

#include <stdlib.h>
#include <sys/mman.h>

struct host_range {
	struct host_range *next;
	char *base;
	size_t size;
	unsigned flags;
	bool ours;
};

static struct host_range *pinned; /* under emu_lock */

/* Finds the range in which the address lies; *at is NULL if there is none. */
static struct host_range **find_pinned(const void *host)
{
	struct host_range **at = &pinned;

	while (*at && !((const char *)host >= (*at)->base &&
	                (const char *)host < (*at)->base + (*at)->size))
		at = &(*at)->next;
	return at;
}

bool emu_is_pinned(const void *host, size_t size)
{
	const struct host_range *range;
	bool all;

	pthread_mutex_lock(&emu_lock);
	range = *find_pinned(host);
	all = range && size <= range->size - (size_t)((const char *)host - range->base);
	pthread_mutex_unlock(&emu_lock);
	return all;
}

static CUresult pin(void *base, size_t size, unsigned flags, bool ours)
{
	struct host_range *range = calloc(1, sizeof(*range));
	CUresult result = CUDA_SUCCESS;

	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*range = (struct host_range){NULL, base, size, flags, ours};
	pthread_mutex_lock(&emu_lock);
	for (const struct host_range *r = pinned; r && !ours; r = r->next)
		if (range->base < r->base + r->size && r->base < range->base + size)
			result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (!result) {
		range->next = pinned;
		pinned = range;
	}
	pthread_mutex_unlock(&emu_lock);
	if (result)
		free(range);
	return result;
}

static struct host_range *take(void *base, bool ours)
{
	struct host_range **at, *range;

	pthread_mutex_lock(&emu_lock);
	at = find_pinned(base);
	range = *at;
	if (range && range->base == base && range->ours == ours)
		*at = range->next;
	else
		range = NULL;
	pthread_mutex_unlock(&emu_lock);
	return range;
}

/* Like the driver this waits until all work has finished that was submitted before. */
static CUresult unpin(void *base, bool ours, CUresult none)
{
	struct emu_request q = {.op = EMU_HOST_UNPIN};
	struct host_range *range = take(base, ours);

	if (!range)
		return none;
	q.arg[0] = ours ? 0 : range->size;
	(void)emu_call(&q, NULL, NULL);
	if (ours)
		munmap(base, range->size);
	free(range);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostAlloc(void **out, size_t size, unsigned int flags)
{
	struct emu_ctx *ctx;

	TRY(emu_need_ctx(&ctx));
	TRY(emu_unsafe_call());
	if (!out || !size || flags & ~7U)
		return CUDA_ERROR_INVALID_VALUE;
	*out = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return *out == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : pin(*out, size, flags, true);
}

EXPORT CUresult cuMemAllocHost(void **out, size_t size)
{
	return cuMemHostAlloc(out, size, 0);
}

EXPORT CUresult cuMemFreeHost(void *host)
{
	TRY(emu_ready());
	return host ? unpin(host, true, CUDA_ERROR_INVALID_VALUE) : CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostRegister(void *host, size_t size, unsigned int flags)
{
	struct emu_ctx *ctx;

	TRY(emu_need_ctx(&ctx));
	if (!host || !size)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(pin(host, size, flags, false));
	return emu_call(&(struct emu_request){.op = EMU_HOST_PIN, .arg = {size}}, NULL, NULL);
}

EXPORT CUresult cuMemHostUnregister(void *host)
{
	EMU_POINT();
	TRY(emu_ready());
	return unpin(host, false, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

EXPORT CUresult cuMemHostGetFlags(unsigned int *flags, void *host)
{
	const struct host_range *range;

	TRY(emu_ready());
	pthread_mutex_lock(&emu_lock);
	range = *find_pinned(host);
	if (range)
		*flags = range->flags;
	pthread_mutex_unlock(&emu_lock);
	return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Host memory has its own address on the device too, as wherever addressing is unified. */
EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr *out, void *host, unsigned int flags)
{
	TRY(emu_ready());
	if (flags || !emu_is_pinned(host, 1))
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUdeviceptr)(uintptr_t)host;
	return CUDA_SUCCESS;
}
