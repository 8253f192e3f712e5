/* dlsym.c: the ways in which a program finds functions of the driver, and how it finds ours
 * instead.
 *
 * The ways are direct binding (our symbols are found first), dlsym and dlvsym in every version that
 * glibc has of them (our symbol has no version, so it serves all), and cuGetProcAddress. The driver
 * is always asked first, and if the pointer that it returns is of a function that we replace, the
 * program gets ours. So versions and forms for per-thread streams need no further care. It is the
 * same with NVML.
 *
 * dlopen is replaced only to hear of RTLD_DEEPBIND.
 */
#include "base/compiler.h"
#include "driver/lookup.h"
#include "hooks/deep_binding.h"

#include <dlfcn.h>
#include <string.h>

#define HOOK(name) extern char wrapper_##name[] __asm__(#name);
#include "driver/hooks.def"

static void *const wrappers[N_HOOKS] = {
#define HOOK(name) [HOOK_##name] = wrapper_##name,
#include "driver/hooks.def"
};

/* Our function, if this is a function of the driver that we replace; else the same pointer. */
static void *wrapper_of(void *real)
{
	for (int i = 0; real && i < N_HOOKS; i++)
		if (hook_is_of_driver((enum hook)i) && real_hook((enum hook)i) == real)
			return wrappers[i];
	return real;
}

/* musl has no dlvsym. */
static void *versioned(void *handle, const char *name, const char *version)
{
	return real_dlvsym ? real_dlvsym(handle, name, version) : NULL;
}

/* Our function, if the handle's symbol of this name is one of the driver that we replace; else
 * NULL. *wrong: the lookup would find our function, but the driver has none of this name. */
__attribute__((noinline)) static void *replacement(void *handle, const char *name,
                                                   const char *version, bool *wrong)
{
	for (int i = 0; i < N_HOOKS; i++) {
		void *found, *real;

		if (strcmp(hooks[i].name, name))
			continue;
		found = version ? versioned(handle, name, version) : real_dlsym(handle, name);
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

/* -- what libraries that bind deeply are bound to: hooks, and behind them in number the loader's
 * own functions -------------------------------------------------------------------------- */

static const char *const loaders[] = {"dlopen", "dlsym", "dlvsym"};
#define N_LOADERS ((int)(sizeof(loaders) / sizeof(loaders[0])))
_Static_assert(N_HOOKS + N_LOADERS <= MOST_REPLACED, "deep_binding.h must count further");

static int number_of(const char *name)
{
	for (int i = 0; i < N_LOADERS; i++)
		if (!strcmp(loaders[i], name))
			return N_HOOKS + i;
	for (int i = 0; may_be_ours(NULL, name) && i < N_HOOKS; i++)
		if (!strcmp(hooks[i].name, name))
			return i;
	return -1;
}

static void look_up(int number)
{
	if (number < N_HOOKS && library_loaded(hooks[number].name))
		real_hook((enum hook)number);
}

static struct replaced known(int number)
{
	const struct replaced of_loader[N_LOADERS] = {
	    {(void *)real_dlopen, (void *)dlopen},
	    {(void *)real_dlsym, (void *)dlsym},
	    {(void *)real_dlvsym, (void *)dlvsym},
	};

	if (number >= N_HOOKS)
		return of_loader[number - N_HOOKS];
	return (struct replaced){atomic_load(&hooks[number].real), wrappers[number]};
}

static const struct replaced_functions replaced = {number_of, look_up, known};

/* A sanitizer asks for loader functions before its own strcmp() works. */
static bool same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

/* Our loader function, if the lookup would find glibc's: by that a program would find the driver's
 * functions past ours. NULL: glibc may answer. A lookup with a version never finds ours by itself,
 * which has none; libraries that stand in for dlsym ask so for the next one. */
__attribute__((noinline)) static void *loader_replacement(void *handle, const char *name,
                                                          const char *version)
{
	struct replaced glibcs;
	int loader = 0;
	void *found;

	while (loader < N_LOADERS && !same(loaders[loader], name))
		loader++;
	if (loader == N_LOADERS || (handle == RTLD_NEXT && !version))
		return NULL;
	if (handle == RTLD_NEXT)
		handle = RTLD_DEFAULT;
	found = version ? versioned(handle, name, version) : real_dlsym(handle, name);
	glibcs = known(N_HOOKS + loader);
	return found && found == glibcs.real ? glibcs.ours : NULL;
}

/* ours: what we give in place of the symbol that the lookup would find; NULL: glibc may answer, for
 * this handle. */
struct answer {
	void *ours, *handle;
};

static struct answer answer(void *handle, const char *name, const char *version)
{
	bool wrong = false;
	void *ours;

	if (name[0] == 'd' && name[1] == 'l')
		return (struct answer){loader_replacement(handle, name, version), handle};
	if (!may_be_ours(handle, name))
		return (struct answer){NULL, handle};
	ours = replacement(handle, name, version, &wrong);
	/* If it is wrong, what the program would get without this library. */
	return (struct answer){ours, wrong ? library_loaded(name) : handle};
}

/* -- the functions that we export ---------------------------------------------------- */

/* The last call must be compiled to a jump, since glibc looks at the return address: a library's
 * own paths are searched for what it opens. */
EXPORT void *dlopen(const char *file, int mode)
{
	find_dlsym();
	if (mode & RTLD_DEEPBIND)
		deep_binding_begins();
	return real_dlopen ? real_dlopen(file, mode) : NULL;
}

/* The last call must be compiled to a jump: for RTLD_NEXT glibc looks at the return address, which
 * must be in the program. */
EXPORT void *dlsym(void *restrict handle, const char *restrict name)
{
	struct answer is;

	find_dlsym();
	deep_binding_follow(&replaced);
	is = answer(handle, name, NULL);
	return is.ours ? is.ours : real_dlsym(is.handle, name);
}

EXPORT void *dlvsym(void *restrict handle, const char *restrict name, const char *restrict version)
{
	struct answer is;

	find_dlsym();
	deep_binding_follow(&replaced);
	is = answer(handle, name, version);
	if (is.ours)
		return is.ours;
	return real_dlvsym ? real_dlvsym(is.handle, name, version) : NULL; /* musl has none */
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
