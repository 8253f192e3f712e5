/* sanitized: prints in which library it finds cuLaunchKernel. It is built with a sanitizer, which
 * looks up functions by dlsym before anything else of the program runs. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	void *function = driver ? dlsym(driver, "cuLaunchKernel") : NULL;
	Dl_info found;

	if (!function || !dladdr(function, &found))
		return 1;
	puts(strrchr(found.dli_fname, '/') + 1);
	return 0;
}
