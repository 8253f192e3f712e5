/* dlsym.c: how a program reaches the driver, and how we stand in its way.
 *
 * Routes: direct binding (our symbols are found first), dlsym and dlvsym in
 * every version that glibc has of them (an unversioned symbol of ours serves
 * all) and cuGetProcAddress. The driver is always asked first; what it returns
 * is replaced by its pointer, so versions and per-thread-stream forms are right
 * by construction. NVML goes the same way.
 */
#include "base/compiler.h"
#include "driver/lookup.h"

#include <dlfcn.h>
#include <string.h>

#define HOOK(name) extern char wrapper_##name[] __asm__(#name);
#include "driver/hooks.def"

static void *const wrappers[N_HOOKS] = {
#define HOOK(name) [HOOK_##name] = wrapper_##name,
#include "driver/hooks.def"
};

/* Our function in place of the driver's, or the same pointer. */
static void *wrapper_of(void *real)
{
	for (int i = 0; real && i < N_HOOKS; i++)
		if (hook_is_of_driver((enum hook)i) && real_hook((enum hook)i) == real)
			return wrappers[i];
	return real;
}

/* A wrapper if what the handle has under this name is the driver's. `wrong`:
 * only we have it, the driver does not. */
__attribute__((noinline)) static void *replacement(void *handle, const char *name,
                                                   const char *version, bool *wrong)
{
	for (int i = 0; i < N_HOOKS; i++) {
		void *found, *real;

		if (strcmp(hooks[i].name, name))
			continue;
		found = version ? real_dlvsym(handle, name, version) : real_dlsym(handle, name);
		if (!found || !library_loaded(name))
			break;
		real = real_hook((enum hook)i);
		*wrong = !real && found == wrappers[i];
		return real && (found == real || found == wrappers[i]) ? wrappers[i] : NULL;
	}
	return NULL;
}

static bool may_be_ours(void *handle, const char *name)
{
	return handle != RTLD_NEXT &&
	       ((name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v'));
}

/* The last call is a jump: with RTLD_NEXT glibc looks at who calls, which must
 * stay the program. */
EXPORT void *dlsym(void *restrict handle, const char *restrict name)
{
	bool wrong = false;
	void *ours;

	find_dlsym();
	if (may_be_ours(handle, name)) {
		ours = replacement(handle, name, NULL, &wrong);
		if (ours)
			return ours;
		if (wrong) /* say what a program without us would hear */
			handle = library_loaded(name);
	}
	return real_dlsym(handle, name);
}

EXPORT void *dlvsym(void *restrict handle, const char *restrict name, const char *restrict version)
{
	bool wrong = false;
	void *ours;

	find_dlsym();
	if (may_be_ours(handle, name)) {
		ours = replacement(handle, name, version, &wrong);
		if (ours)
			return ours;
		if (wrong)
			handle = library_loaded(name);
	}
	return real_dlvsym(handle, name, version);
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	__typeof__(&cuGetProcAddress) real = DRIVER(cuGetProcAddress);
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = real(symbol, pfn, cudaVersion, flags);
	if (result)
		return result;
	*pfn = wrapper_of(*pfn);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion,
                                    cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	__typeof__(&cuGetProcAddress_v2) real = DRIVER(cuGetProcAddress_v2);
	CUresult result;

	if (!real)
		return CUDA_ERROR_NOT_FOUND;
	result = real(symbol, pfn, cudaVersion, flags, status);
	if (result)
		return result;
	*pfn = wrapper_of(*pfn);
	return CUDA_SUCCESS;
}
