/* lookup.c: how a program reaches the driver, and how we stand in its way.
 *
 * Routes: direct binding (our symbols are found first), dlsym in both of
 * glibc's versions (an unversioned symbol of ours serves both) and
 * cuGetProcAddress. The driver is always asked
 * first; what it returns is replaced by its pointer, so versions and
 * per-thread-stream forms are right by construction.
 */
#include "shim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#define OLD_DLSYM "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OLD_DLSYM "GLIBC_2.17"
#else
#error "which version has dlsym in this architecture's glibc?"
#endif

typedef void *dlsym_function(void *handle, const char *name);

/* The addresses of our wrappers, without cuda.h's macros renaming them. */
#define GATED(name, stream, parameters, arguments) extern char wrapper_##name[] __asm__(#name);
#define GATED2(name, suffix, stream, parameters, arguments)                                        \
	extern char wrapper_##name[] __asm__(#name);                                               \
	extern char wrapper_##name##suffix[] __asm__(#name #suffix);
#define OWN(name) extern char wrapper_##name[] __asm__(#name);
#define OWN2(name, suffix)                                                                         \
	extern char wrapper_##name[] __asm__(#name);                                               \
	extern char wrapper_##name##suffix[] __asm__(#name #suffix);
#include "hooks.def"
#undef GATED
#undef GATED2
#undef OWN
#undef OWN2

static struct {
	const char *name;
	void *wrapper;
	_Atomic(void *) real;
} hooks[N_HOOKS] = {
#define GATED(name, stream, parameters, arguments) [HOOK_##name] = {#name, wrapper_##name, NULL},
#define GATED2(name, suffix, stream, parameters, arguments)                                        \
	[HOOK_##name] = {#name, wrapper_##name, NULL},                                             \
	[HOOK_##name##suffix] = {#name #suffix, wrapper_##name##suffix, NULL},
#define OWN(name) [HOOK_##name] = {#name, wrapper_##name, NULL},
#define OWN2(name, suffix)                                                                         \
	[HOOK_##name] = {#name, wrapper_##name, NULL},                                             \
	[HOOK_##name##suffix] = {#name #suffix, wrapper_##name##suffix, NULL},
#include "hooks.def"
};

static dlsym_function *real_dlsym;
static _Atomic(void *) driver;

static void find_dlsym(void)
{
	real_dlsym = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
	if (!real_dlsym)
		real_dlsym = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", OLD_DLSYM);
}

__attribute__((constructor)) static void initialize(void)
{
	find_dlsym();
}

static void *driver_handle(void)
{
	void *handle = atomic_load(&driver);

	if (!handle) {
		/* The program's driver if it has loaded one, whatever the scope it chose. */
		handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
		if (!handle)
			handle = dlopen("libcuda.so.1", RTLD_LAZY);
		if (handle)
			atomic_store(&driver, handle);
	}
	return handle;
}

void *real_symbol(const char *name)
{
	void *handle = driver_handle();

	if (!real_dlsym)
		find_dlsym();
	return handle ? real_dlsym(handle, name) : NULL;
}

void *real_hook(enum hook hook)
{
	void *real = atomic_load_explicit(&hooks[hook].real, memory_order_acquire);

	if (!real) {
		real = real_symbol(hooks[hook].name);
		atomic_store_explicit(&hooks[hook].real, real, memory_order_release);
	}
	return real;
}

void *wrapper_of(void *real)
{
	for (int i = 0; real && i < N_HOOKS; i++)
		if (real_hook((enum hook)i) == real)
			return hooks[i].wrapper;
	return real;
}

/* A wrapper if the driver of this handle has the name, else NULL. */
__attribute__((noinline)) static void *replacement(void *handle, const char *name)
{
	void *found = NULL;

	for (int i = 0; i < N_HOOKS; i++) {
		if (strcmp(hooks[i].name, name))
			continue;
		found = real_dlsym(handle, name);
		if (found && (found == hooks[i].wrapper || found == real_hook((enum hook)i)))
			return hooks[i].wrapper;
	}
	return NULL;
}

/* The last call is a jump: with RTLD_NEXT glibc looks at who calls, which must
 * stay the program. */
EXPORT void *dlsym(void *restrict handle, const char *restrict name)
{
	void *ours;

	if (!real_dlsym)
		find_dlsym();
	if (name[0] == 'c' && name[1] == 'u' && handle != RTLD_NEXT) {
		ours = replacement(handle, name);
		if (ours)
			return ours;
	}
	return real_dlsym(handle, name);
}
