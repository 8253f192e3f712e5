/* lookup.h: the driver's own functions, behind the ones that this library puts in their place. */
#ifndef GPU_LEASE_LOOKUP_H
#define GPU_LEASE_LOOKUP_H

#include "base/compiler.h"

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* The stream that a function of the _ptds and _ptsz kind means. */
#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

/* The driver's function behind one of ours; NULL: the driver has none. */
#define DRIVER(name) ((__typeof__(&name))real_hook(HOOK_##name))

/* One number for every hooked function. */
enum hook {
#define HOOK(name) HOOK_##name,
#include "driver/hooks.def"
	N_HOOKS
};

struct hooked {
	const char *name;
	_Atomic(void *) real;
};
extern struct hooked hooks[N_HOOKS];
void *find_hook(enum hook hook);
void *real_symbol(const char *name);
bool hook_is_of_driver(enum hook hook); /* else it is NVML's */

/* The function behind a hook, NULL if the driver has none. */
static inline void *real_hook(enum hook hook)
{
	void *real = atomic_load_explicit(&hooks[hook].real, memory_order_acquire);

	return likely(real != NULL) ? real : find_hook(hook);
}

/* The driver's function of a name in cuda.h, looked up once. cuda.h is read
 * with __CUDA_API_VERSION_INTERNAL: every name means itself, no macro renames it. */
#define REAL(name)                                                                                 \
	({                                                                                         \
		static _Atomic(void *) found;                                                      \
		if (!atomic_load_explicit(&found, memory_order_acquire))                           \
			atomic_store_explicit(&found, real_symbol(#name), memory_order_release);   \
		(__typeof__(&name))atomic_load_explicit(&found, memory_order_acquire);             \
	})

/* The library that a name is of, if the program has loaded it; else NULL. */
void *library_loaded(const char *name);

/* glibc's own dlsym and dlvsym, there after find_dlsym(). */
typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlvsym_function(void *handle, const char *name, const char *version);
extern dlsym_function *real_dlsym;
extern dlvsym_function *real_dlvsym;
void find_dlsym(void);

#endif
