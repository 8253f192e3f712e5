/* driver.c: finds the driver's functions. */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>

static struct chain_cuda functions;
static bool found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* In this order: the interposer's functions stand before the library's. */
static void *function(void *library, const char *name)
{
	void *address = dlsym(RTLD_DEFAULT, name);

	return address ? address : dlsym(library, name);
}

static void find(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	found = library;
#define FIND(name, parameters, symbol)                                                             \
	if (found)                                                                                 \
		*(void **)&functions.name = function(library, #symbol);                            \
	found = found && functions.name;
	CHAIN_CUDA(FIND)
#undef FIND
#define FIND(name, parameters, symbol)                                                             \
	if (found)                                                                                 \
		*(void **)&functions.name = function(library, #symbol);
	CHAIN_PARTS(FIND)
#undef FIND
}

const struct chain_cuda *chain_cuda(void)
{
	pthread_once(&once, find);
	return found ? &functions : NULL;
}

bool chain_context_is_lost(const struct chain_cuda *cuda)
{
	CUresult result = cuda->cuStreamQuery(NULL);
	bool captures = result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
	                result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;

	return result && result != CUDA_ERROR_NOT_READY && !captures;
}
