/* lookup.h: the functions of the driver and of NVML that this library replaces.
 *
 * Any thread may call these functions. A first lookup may take the dynamic loader's lock.
 */
#ifndef GPU_LEASE_LOOKUP_H
#define GPU_LEASE_LOOKUP_H

#include "base/compiler.h"
#include "base/watch.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* The stream that a function of the _ptds or _ptsz form means by `stream`: in these the default
 * stream is the calling thread's own. */
#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

/* The driver's function that our function `name` replaces; NULL if the driver has none. */
#define DRIVER(name) ((__typeof__(&name))real_hook(HOOK_##name))

/* A number for every function of hooks.def. */
enum hook {
#define HOOK(name) HOOK_##name,
#include "driver/hooks.def"
	N_HOOKS
};

struct hooked {
	const char *name;
	_Atomic(void *) real;
};
extern struct hooked hooks[N_HOOKS]; /* real: NULL until it is looked up */
/* Looks the real function of a hook up and remembers it; NULL if the library has none. */
void *find_hook(enum hook hook);
/* Looks up a function of the driver or of NVML, whose names begin with "nvml". Loads the library if
 * the program has not; NULL if there is no library or no such function. */
void *real_symbol(const char *name);
/* Is it a function of the driver? Otherwise it is one of NVML. */
bool hook_is_of_driver(enum hook hook);

/* As find_hook(), but only the first call looks the function up. */
static inline void *real_hook(enum hook hook)
{
	void *real = atomic_load_explicit(&hooks[hook].real, memory_order_acquire);

	return likely(real != NULL) ? real : find_hook(hook);
}

/* The driver's function of this name in cuda.h, looked up once; NULL if the driver has none. cuda.h
 * is read with __CUDA_API_VERSION_INTERNAL, so that no macro renames a function. */
#define REAL(name)                                                                                 \
	({                                                                                         \
		static _Atomic(void *) found;                                                      \
		if (!atomic_load_explicit(&found, memory_order_acquire))                           \
			atomic_store_explicit(&found, real_symbol(#name), memory_order_release);   \
		(__typeof__(&name))atomic_load_explicit(&found, memory_order_acquire);             \
	})

/* Called once, when the driver's library is loaded and before the program can call it through us:
 * handle as dlopen() returns it. The loader's lock may be held. */
WATCH_LIST(driver_watches, void(void *handle));
#define DRIVER_WATCH(loaded) WATCH(driver_watches, loaded)

/* The handle of the library that has functions of such a name, if the program has loaded it; else
 * NULL. */
void *library_loaded(const char *name);

/* glibc's own dlopen, dlsym and dlvsym, which find_dlsym() finds. */
typedef void *dlopen_function(const char *file, int mode);
typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlvsym_function(void *handle, const char *name, const char *version);
extern dlopen_function *real_dlopen;
extern dlsym_function *real_dlsym;
extern dlvsym_function *real_dlvsym;
void find_dlsym(void);

#endif
