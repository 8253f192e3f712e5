/* deep_binding MODE LIBRARY PREFIX: opens a library of deep_library.c with RTLD_DEEPBIND, `lazy` or
 * `now`, and prints which library each of its functions PREFIX_name, PREFIX_call and PREFIX_address
 * has found cuLaunchKernel in. The library's name has no slash, so it is found beside this program
 * only if glibc knows who opens it. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char *const ways[] = {"name", "call", "address"};

int main(int argc, char **argv)
{
	void *library;
	char name[32];

	if (argc != 4)
		return 2;
	library = dlopen(argv[2], RTLD_DEEPBIND | (strcmp(argv[1], "now") ? RTLD_LAZY : RTLD_NOW));
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		void *(*find)(void);
		Dl_info found;

		snprintf(name, sizeof(name), "%s_%s", argv[3], ways[i]);
		find = (void *(*)(void))dlsym(library, name);
		if (!find || !dladdr((void *)find(), &found))
			return 1;
		printf("%s %s\n", ways[i], strrchr(found.dli_fname, '/') + 1);
	}
	return 0;
}
