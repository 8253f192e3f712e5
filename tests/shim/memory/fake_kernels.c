/* fake_kernels.c: the fake driver's modules and host memory, and the one kernel that it has: the
 * fingerprint, which it computes by the function for the host. */
#include "fake_functions.h"
#include "fake_objects.h"
#include "memory/swap/fingerprint.h"

#include <string.h>
#include <sys/mman.h>

#define KERNEL "gpu_lease_fingerprint"

FAKE(cuModuleLoadData)(CUmodule *module, const void *image)
{
	if (fake_driver.refuse_modules)
		return CUDA_ERROR_INVALID_PTX;
	if (!strstr(image, ".entry " KERNEL "("))
		fake_dies("a module without the kernel");
	*module = (CUmodule)(uintptr_t)1;
	LOCKED(fake_driver.modules++);
	return CUDA_SUCCESS;
}

FAKE(cuModuleGetFunction)(CUfunction *function, CUmodule module, const char *name)
{
	(void)module;
	*function = (CUfunction)(uintptr_t)1;
	return strcmp(name, KERNEL) ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

FAKE(cuModuleUnload)(CUmodule module)
{
	(void)module;
	LOCKED(fake_driver.modules--);
	return CUDA_SUCCESS;
}

FAKE(cuMemHostAlloc)(void **out, size_t size, unsigned int flags)
{
	(void)flags;
	*out = fake_pages(size, PROT_READ | PROT_WRITE);
	if (!*out)
		return CUDA_ERROR_OUT_OF_MEMORY;
	LOCKED(fake_add(FAKE_PINNED, *out, size, -1); fake_driver.pinned += size);
	return CUDA_SUCCESS;
}

FAKE(cuMemHostGetDevicePointer_v2)(CUdeviceptr *out, void *at, unsigned int flags)
{
	(void)flags;
	*out = (CUdeviceptr)(uintptr_t)at;
	return CUDA_SUCCESS;
}

FAKE(cuMemFreeHost)(void *at)
{
	LOCKED(munmap(at, fake_unpin(at, "host memory is freed that is not there")));
	return CUDA_SUCCESS;
}

static void fingerprint(const char *at, size_t tiles, struct fingerprint *values,
                        const struct fingerprint_keys *keys)
{
	for (size_t n; tiles; tiles -= n, at += n * FINGERPRINT_TILE) {
		n = tiles < FINGERPRINT_STRETCH ? tiles : FINGERPRINT_STRETCH;
		*values = fingerprint_stretch(keys, at, n);
		values->b ^= fake_driver.wrong_fingerprints;
		values++;
	}
}

FAKE(cuLaunchKernel)
(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
 unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **parameters,
 void **extra)
{
	CUdeviceptr at = *(CUdeviceptr *)parameters[0];
	size_t tiles = *(uint64_t *)parameters[1];
	CUdeviceptr values = *(CUdeviceptr *)parameters[2];

	(void)function, (void)gy, (void)gz, (void)by, (void)bz, (void)shared, (void)stream;
	(void)extra;
	if (fake_driver.refuse_launches)
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	if (bx != 128 || gx * 4 < fingerprint_stretches(tiles))
		fake_dies("a kernel with too few threads");
	fingerprint((const char *)(uintptr_t)at, tiles, (struct fingerprint *)(uintptr_t)values,
	            parameters[3]);
	LOCKED(fake_driver.looked_at += tiles * FINGERPRINT_TILE);
	return CUDA_SUCCESS;
}
