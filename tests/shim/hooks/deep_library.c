/* deep_library.c: a library that finds a function of the driver in three ways. Tests open it with
 * RTLD_DEEPBIND, or, with -DOUTER, a library that needs it. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>

extern void *by_name(void), *by_call(void), *by_address(void), *by_writing(void);

#ifdef OUTER
extern void *outer_name(void), *outer_call(void), *outer_address(void);

void *outer_name(void)
{
	return by_name();
}

void *outer_call(void)
{
	return by_call();
}

void *outer_address(void)
{
	return by_address();
}
#else
void *by_name(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	return driver ? dlsym(driver, "cuLaunchKernel") : NULL;
}

void *by_call(void)
{
	CUdriverProcAddressQueryResult status;
	void *found = NULL;

	cuGetProcAddress_v2("cuLaunchKernel", &found, 12000, 0, &status);
	return found;
}

void *by_address(void)
{
	return (void *)cuLaunchKernel;
}

/* The same; it writes to data of the library. */
void *by_writing(void)
{
	static volatile int calls;

	calls++;
	return calls ? by_address() : NULL;
}
#endif
